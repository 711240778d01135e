//! Splits a graph into runs of nodes that stay on one side, as few as the data flow allows: first the nodes that no step
//! changes, then the others.
//!
//! Each part costs a transfer and a submission, hence as few as possible.

use super::side::HybridSide;
use tapml_graph::{Graph, NodeId, Origin};

/// Nodes of one side that run together, in graph order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HybridPart {
    /// Where they run.
    pub side: HybridSide,
    /// Whether they run only when an image is given; see [`Graph::loop_invariant_nodes`].
    pub loop_invariant: bool,
    /// In graph order.
    pub nodes: Vec<NodeId>,
}

/// The parts in execution order. Each takes every node of its side whose inputs are there by then, whatever the nodes'
/// order in the graph was, and the side that needs fewer parts goes first: no other order of whole parts is shorter.
pub(crate) fn split(graph: &Graph, side: &dyn Fn(NodeId) -> HybridSide) -> Vec<HybridPart> {
    let sides: Vec<HybridSide> = (0..graph.nodes().len()).map(|i| side(NodeId(i as u32))).collect();
    let once = graph.loop_invariant_nodes();
    let mut parts = Vec::new();
    for wanted in [true, false] {
        let stage = Stage { graph, sides: &sides, loop_invariant: &once, wanted };
        let (source, target) = (stage.alternate(HybridSide::Source), stage.alternate(HybridSide::Target));
        // The source goes first where both need as many.
        parts.extend(if target.len() < source.len() { target } else { source });
    }
    parts
}

/// The nodes that run once, or the others after them.
struct Stage<'a> {
    graph: &'a Graph,
    sides: &'a [HybridSide],
    loop_invariant: &'a [bool],
    wanted: bool,
}

impl Stage<'_> {
    /// The parts if `first` begins and the sides take turns.
    fn alternate(&self, first: HybridSide) -> Vec<HybridPart> {
        // What is not of this stage has run before it, or is not needed in it.
        let mut done: Vec<bool> = self.loop_invariant.iter().map(|&once| once != self.wanted).collect();
        let mut parts = Vec::new();
        let mut side = first;
        while done.contains(&false) {
            let mut nodes = Vec::new();
            for (i, node) in self.graph.nodes().iter().enumerate() {
                let ready = |from: Origin| match from {
                    Origin::Node { node, .. } => done[node.0 as usize],
                    _ => true,
                };
                let inputs = || node.inputs.iter().all(|&v| ready(self.graph.value(v).origin));
                if !done[i] && self.sides[i] == side && inputs() {
                    done[i] = true;
                    nodes.push(NodeId(i as u32));
                }
            }
            if !nodes.is_empty() {
                parts.push(HybridPart { side, loop_invariant: self.wanted, nodes });
            }
            side = side.opposite();
        }
        parts
    }
}
