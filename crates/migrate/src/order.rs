//! The work of recorded calls, and the order in which operator kinds are moved, which rests on it.

use crate::ledger::Entry;
use crate::suite::{Case, Suite};
use std::collections::HashMap;

/// About the multiplications of a call; see [`tapml_graph::Graph::estimate_work`].
pub fn estimate_work(suite: &Suite, case: Case) -> u64 {
    suite.graph().estimate_work(suite.graph().node(case.node), &suite.frames()[case.frame].symbols)
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
