//! `drop_dead`: removes nodes that reach no result and no state, and weights that nothing uses. Inputs and states stay:
//! they are the graph's signature.

use super::Patch;
use super::uses::{Uses, producer};
use crate::error::Result;
use crate::graph::{Graph, NodeId};

/// One edit with everything that is dead.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    let uses = Uses::from_graph(graph);
    let mut live = vec![false; graph.nodes().len()];
    // Backwards in topological order, so that users are judged before what they use.
    for (i, node) in graph.nodes().iter().enumerate().rev() {
        let kept = node.outputs.iter().any(|&v| uses.is_kept(v));
        if kept || live[i] {
            live[i] = true;
            for from in node.inputs.iter().filter_map(|&v| producer(graph, v)) {
                live[from.0 as usize] = true;
            }
        }
    }
    let is_live = |node: &NodeId| live[node.0 as usize];
    let dead: Vec<NodeId> = (0..live.len()).map(|i| NodeId(i as u32)).filter(|n| !is_live(n)).collect();
    let unused: Vec<_> = graph
        .weights()
        .map(|(id, _)| id)
        .filter(|&w| !uses.is_kept(w) && !uses.users(w).iter().any(is_live))
        .collect();
    if dead.is_empty() && unused.is_empty() {
        return Ok(());
    }
    patch.replace(&dead)?;
    unused.into_iter().try_for_each(|w| patch.drop_weight(w))
}
