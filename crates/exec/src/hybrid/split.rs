//! Splits a graph into runs of nodes that stay on one side, as few as the data flow allows.

use super::Side;
use tapml_graph::{Graph, NodeId, Origin};

/// Nodes of one side that run together, in graph order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub side: Side,
    pub nodes: Vec<NodeId>,
}

/// The parts in execution order. Each takes every node of its side whose inputs are there by then, whatever the nodes'
/// order in the graph was, and the side that needs fewer parts goes first: no other order of whole parts is shorter.
pub(super) fn split(graph: &Graph, side: &dyn Fn(NodeId) -> Side) -> Vec<Part> {
    let sides: Vec<Side> = (0..graph.nodes().len()).map(|i| side(NodeId(i as u32))).collect();
    let source = alternate(graph, &sides, Side::Source);
    let target = alternate(graph, &sides, Side::Target);
    if target.len() < source.len() { target } else { source }
}

fn alternate(graph: &Graph, sides: &[Side], first: Side) -> Vec<Part> {
    let mut done = vec![false; sides.len()];
    let mut parts = Vec::new();
    let mut side = first;
    while done.contains(&false) {
        let mut nodes = Vec::new();
        for (i, node) in graph.nodes().iter().enumerate() {
            let ready = |from: Origin| match from {
                Origin::Node { node, .. } => done[node.0 as usize],
                _ => true,
            };
            if !done[i] && sides[i] == side && node.inputs.iter().all(|&v| ready(graph.value(v).origin)) {
                done[i] = true;
                nodes.push(NodeId(i as u32));
            }
        }
        if !nodes.is_empty() {
            parts.push(Part { side, nodes });
        }
        side = side.other();
    }
    parts
}
