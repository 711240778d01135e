//! What a loop over a graph's nodes needs to know beforehand: which values must come here, and when each is dead.

use std::collections::HashSet;
use tapml_graph::{Graph, Origin, ValueId};

/// See the module.
pub(super) struct OperatorPlan {
    /// For each value, whether its bytes are needed here; the server holds all others.
    pub here: Vec<bool>,
    /// For each node, the values that nobody needs after it.
    pub dead: Vec<Vec<ValueId>>,
}

impl OperatorPlan {
    /// A plan in which the values of the nodes named in `trace` can be shown.
    pub fn from_graph(graph: &Graph, trace: &HashSet<String>) -> OperatorPlan {
        OperatorPlan { here: runs_here(graph, trace), dead: dead(graph, trace) }
    }
}

/// Outputs, traced values, and what such a value becomes by way of a state.
fn runs_here(graph: &Graph, trace: &HashSet<String>) -> Vec<bool> {
    let mut here = vec![false; graph.values().len()];
    let traced = graph.nodes().iter().filter(|node| trace.contains(&node.name));
    let shown = traced.flat_map(|node| node.inputs.iter().chain(&node.outputs)).copied();
    for id in graph.outputs().iter().map(|o| o.value).chain(shown) {
        here[id.0 as usize] = true;
    }
    // What a state holds is shown in the next run as what it became in this one.
    while let Some(id) = graph.states().iter().find_map(|state| {
        let (input, output) = (state.input.0 as usize, state.output.0 as usize);
        (here[input] && !here[output]).then_some(output)
    }) {
        here[id] = true;
    }
    // Nobody asks for the data of a value that no node, state or result uses, but it has to go somewhere.
    let users = graph.users();
    for (i, value) in graph.values().iter().enumerate() {
        let kept = graph.states().iter().any(|state| state.output.0 as usize == i);
        here[i] |= matches!(value.origin, Origin::Node { .. }) && users[i].is_empty() && !kept;
    }
    here
}

/// Outputs, states and traced values are never dead.
fn dead(graph: &Graph, trace: &HashSet<String>) -> Vec<Vec<ValueId>> {
    let mut last: Vec<Option<usize>> = vec![None; graph.values().len()];
    for (i, node) in graph.nodes().iter().enumerate() {
        for id in node.inputs.iter().chain(&node.outputs) {
            last[id.0 as usize] = Some(i);
        }
    }
    let traced = graph.nodes().iter().filter(|node| trace.contains(&node.name));
    let shown = traced.flat_map(|node| node.inputs.iter().chain(&node.outputs)).copied();
    let kept = graph.outputs().iter().map(|o| o.value).chain(graph.states().iter().map(|s| s.output));
    for id in kept.chain(shown) {
        last[id.0 as usize] = None;
    }
    let mut dead = vec![Vec::new(); graph.nodes().len()];
    for (i, last) in last.iter().enumerate() {
        if let Some(node) = last {
            dead[*node].push(ValueId(i as u32));
        }
    }
    dead
}
