//! The work of recorded calls, and the order in which operator kinds are moved, which rests on it.

use crate::ledger::Entry;
use crate::suite::{Case, Suite};
use std::collections::HashMap;
use tapml_graph::TensorType;

/// About the multiplications of a call: elements of the outputs times the longest sum that one of them may be.
pub fn estimate_work(suite: &Suite, case: Case) -> u64 {
    let (graph, symbols) = (suite.graph(), &suite.frames()[case.frame].symbols);
    let node = graph.node(case.node);
    let sizes = |ty: &TensorType| ty.sizes(symbols).unwrap_or_default();
    let outputs: Vec<Vec<usize>> = node.outputs.iter().map(|&v| sizes(&graph.value(v).ty)).collect();
    let inputs: Vec<Vec<usize>> = graph.input_types(node).iter().map(sizes).collect();
    let elements: u64 = outputs.iter().map(|shape| shape.iter().map(|&d| d as u64).product::<u64>()).sum();
    // Element-wise: one operation for each element.
    if inputs.iter().all(|shape| outputs.contains(shape)) {
        return elements;
    }
    // An operator whose rows see each other may sum over all rows.
    let rows = inputs.iter().filter(|_| !node.op.row_wise()).filter_map(|shape| shape.first());
    let longest = inputs.iter().filter_map(|shape| shape.last()).chain(rows).max();
    elements.saturating_mul(longest.map_or(1, |&l| l as u64))
}

/// Indices of the ledger's entries in the order in which they are moved. What has been moved runs in the check of every later one: a target
/// that the host's processor computes gets the most work last, and any other one takes it over first. Equal work goes in graph order.
pub(crate) fn sort_moves(suite: &Suite, entries: &[Entry], is_software: bool) -> Vec<usize> {
    let mut work: HashMap<&str, u64> = HashMap::new();
    for case in suite.cases() {
        let sum = work.entry(suite.graph().node(case.node).op.name()).or_default();
        *sum = sum.saturating_add(estimate_work(suite, case));
    }
    let work_of = |&at: &usize| work.get(entries[at].op.as_str()).copied().unwrap_or(0);
    // The sorts are stable, so that equal work keeps graph order.
    let mut order: Vec<usize> = (0..entries.len()).collect();
    if is_software {
        order.sort_by_key(work_of);
    } else {
        order.sort_by_key(|at| std::cmp::Reverse(work_of(at)));
    }
    order
}
