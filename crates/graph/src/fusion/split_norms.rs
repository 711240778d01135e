//! Residual additions apart from the norms behind them, so that either can join other nodes, and together again where
//! nothing took them.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::rewrite::rewrite;

/// The graph with every `add_rms_norm` as an `add` and an `rms_norm`.
pub fn split_norms(graph: &Graph) -> Result<Graph> {
    let fused = (0u32..).zip(graph.nodes()).filter(|(_, node)| matches!(node.op, Op::AddRmsNorm(_)));
    let ids: Vec<NodeId> = fused.map(|(at, _)| NodeId(at)).collect();
    Ok(graph.expand(&ids)?.unwrap_or_else(|| graph.clone()))
}

/// The graph with each `add` and the `rms_norm` of its sum as one `add_rms_norm`, named as in the graph that
/// [`split_norms`] was given.
pub fn join_norms(graph: &Graph, before: &Graph) -> Result<Graph> {
    let (mut joined, _) = rewrite(graph, &["fuse_add_rms_norm"])?;
    let named: Vec<(usize, String)> = joined
        .nodes()
        .iter()
        .enumerate()
        .filter(|(_, node)| matches!(node.op, Op::AddRmsNorm(_)))
        .filter_map(|(at, node)| {
            let sum = before.find_value(&joined.value(node.outputs[0]).name)?;
            let (_, maker) = super::uses::maker(before, sum)?;
            (matches!(maker.op, Op::AddRmsNorm(_)) && joined.find_node(&maker.name).is_none())
                .then(|| (at, maker.name.clone()))
        })
        .collect();
    for (at, name) in named {
        joined.nodes[at].name = name;
    }
    Ok(joined)
}
