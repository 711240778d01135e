//! `fuse_quantized`: an operator whose weights are `dequantize` of stored words becomes the one that reads the words:
//! `linear(x, dequantize(q, s))` becomes `quantized_linear(x, q, s)`, and likewise the gated, embedding and expert forms.
//! The `dequantize` itself goes when nothing else uses it.

use super::Patch;
use super::uses::stored;
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{
    Op, Packing, QuantizedEmbedding, QuantizedExpertGatedLinear, QuantizedExpertLinear, QuantizedGatedLinear,
    QuantizedLinear,
};

/// One edit for each such operator.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    for (i, node) in graph.nodes().iter().enumerate() {
        if let Some((fused, inputs)) = matches(graph, node) {
            patch.replace(&[NodeId(i as u32)])?;
            let inputs: Vec<_> = inputs.iter().map(|&v| patch.tap(v)).collect();
            let fused = patch.wire(&node.name, fused, &inputs)?;
            patch.shunt(node.outputs[0], fused[0])?;
        }
    }
    Ok(())
}

/// The operator on stored words that the node becomes, with its inputs.
fn matches(graph: &Graph, node: &Node) -> Option<(Op, Vec<ValueId>)> {
    let weights = match node.op {
        Op::Linear(_) | Op::Embedding(_) | Op::ExpertLinear(_) => 1..2,
        Op::GatedLinear(_) | Op::ExpertGatedLinear(_) => 1..3,
        _ => return None,
    };
    let stored = node.inputs[weights.clone()].iter().map(|&weight| stored(graph, weight));
    let stored: Vec<(Packing, &[ValueId])> = stored.collect::<Option<_>>()?;
    let packing = stored[0].0;
    if stored.iter().any(|(other, _)| *other != packing) {
        return None;
    }
    let fused = match &node.op {
        Op::Linear(linear) => QuantizedLinear::of(packing, linear).into(),
        Op::Embedding(embedding) => QuantizedEmbedding::of(packing, embedding).into(),
        Op::ExpertLinear(_) => QuantizedExpertLinear::of(packing).into(),
        Op::GatedLinear(_) => QuantizedGatedLinear::of(packing).into(),
        Op::ExpertGatedLinear(_) if !packing.zeros => QuantizedExpertGatedLinear::of(packing).into(),
        _ => return None,
    };
    let parts = stored.iter().flat_map(|(_, parts)| parts.iter());
    let inputs = node.inputs[..weights.start].iter().chain(parts).chain(&node.inputs[weights.end..]);
    Some((fused, inputs.copied().collect()))
}
