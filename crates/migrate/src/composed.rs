//! The operators whose calls are composed of recorded ones.

use crate::suite::Suite;
use tapml_graph::Graph;

/// The operators of composed suites that a graph does not have: fused ones, what fusing leaves of operators that it takes
/// apart, and the choice of the next token. Each once, with the number of its nodes in the phase with most.
pub(crate) fn composed_kinds(graph: &Graph, composed: &[Suite; 2]) -> Vec<(&'static str, usize)> {
    let mut kinds: Vec<(&'static str, usize)> = Vec::new();
    for (op, nodes) in composed.iter().flat_map(|suite| suite.graph().op_kinds()) {
        match kinds.iter_mut().find(|(known, _)| *known == op) {
            Some((_, most)) => *most = nodes.max(*most),
            None if is_composed(graph, op) => kinds.push((op, nodes)),
            None => {}
        }
    }
    kinds
}

/// Whether the calls of an operator are composed of recorded ones: the graph itself does not have it.
pub(crate) fn is_composed(graph: &Graph, op: &str) -> bool {
    graph.nodes().iter().all(|node| node.op.name() != op)
}
