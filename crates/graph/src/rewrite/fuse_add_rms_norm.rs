//! `fuse_add_rms_norm`: `sum = add(a, b)`, `y = rms_norm(sum, w)` become `sum, y = add_rms_norm(a, b, w)`. The sum may
//! have other users: it stays a value.

use super::Patch;
use super::uses::producer;
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{AddRmsNorm, Op};

/// One edit for each `add` and the first `rms_norm` of its sum.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    for (i, node) in graph.nodes().iter().enumerate() {
        if let Some((add, eps)) = matches(graph, node)
            && !patch.removes(add)
        {
            patch.replace(&[add, NodeId(i as u32)])?;
            let add = graph.node(add);
            let inputs = [add.inputs[0], add.inputs[1], node.inputs[1]];
            let inputs = inputs.map(|v| patch.tap(v));
            let fused = patch.wire(&node.name, AddRmsNorm { eps }, &inputs)?;
            patch.shunt(add.outputs[0], fused[0])?;
            patch.shunt(node.outputs[0], fused[1])?;
        }
    }
    Ok(())
}

fn matches(graph: &Graph, node: &Node) -> Option<(NodeId, f32)> {
    let Op::RmsNorm(norm) = &node.op else { return None };
    let add = producer(graph, node.inputs[0])?;
    let is_add = matches!(graph.node(add).op, Op::Add(_));
    // A computed weight could depend on the sum, and the fused node would then need its own output.
    let given = producer(graph, node.inputs[1]).is_none();
    (is_add && given).then_some((add, norm.eps))
}
