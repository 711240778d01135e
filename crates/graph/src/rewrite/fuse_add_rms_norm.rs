//! `fuse_add_rms_norm`: `sum = add(a, b)`, `y = rms_norm(sum (, w))` become `sum, y = add_rms_norm(a, b (, w))` where
//! whole rows are normalised. The sum may have other users: it stays a value.

use super::Patch;
use super::uses::producer;
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{AddRmsNorm, Op, RmsNorm};

/// One edit for each `add` and the first `rms_norm` of its sum.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    for (i, node) in graph.nodes().iter().enumerate() {
        if let Some((add, fused)) = matches(graph, node)
            // A second norm of the same sum stays plain.
            && !patch.removes(add)
        {
            patch.replace(&[add, NodeId(i as u32)])?;
            let add = graph.node(add);
            let inputs: Vec<_> = add.inputs.iter().chain(&node.inputs[1..]).map(|&v| patch.tap(v)).collect();
            let fused = patch.wire(&node.name, fused, &inputs)?;
            // The sum is an output of the fused node, too.
            patch.shunt(add.outputs[0], fused[0])?;
            patch.shunt(node.outputs[0], fused[1])?;
        }
    }
    Ok(())
}

/// The addition in front of a norm, and both in one.
fn matches(graph: &Graph, node: &Node) -> Option<(NodeId, AddRmsNorm)> {
    let Op::RmsNorm(RmsNorm { eps, offset, group: None }) = node.op else { return None };
    let add = producer(graph, node.inputs[0])?;
    let is_add = is_whole_add(graph, graph.node(add));
    // A computed weight could depend on the sum, and the fused node would then need its own output.
    let given = node.inputs[1..].iter().all(|&w| producer(graph, w).is_none());
    (is_add && given).then_some((add, AddRmsNorm { eps, offset }))
}

/// Whether the node adds two values of one type: a fused sum stretches neither.
fn is_whole_add(graph: &Graph, node: &Node) -> bool {
    matches!(node.op, Op::Add(_)) && graph.value(node.inputs[0]).ty == graph.value(node.inputs[1]).ty
}
