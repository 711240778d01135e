//! `fuse_expert_gated_linear`: `mul(silu(expert_linear(x, gate, experts)), expert_linear(x, up, experts))`, factors in
//! either order, becomes `expert_gated_linear(x, gate, up, experts)` where nothing else uses the values between. Experts
//! that are packed with zero points stay apart: a kernel would bind more buffers than WebGPU grants.

use super::Patch;
use super::uses::{Uses, gated_product, same_type};
use crate::error::Result;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ExpertGatedLinear, Op};

/// One edit for each such product.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    let uses = Uses::from_graph(graph);
    for (i, node) in graph.nodes().iter().enumerate() {
        let Some(product) = gated_product(graph, &uses, NodeId(i as u32)) else { continue };
        let (gate, up) = (match_unbiased(graph, product.gate), match_unbiased(graph, product.up));
        let (Some([x, gate, experts]), Some([up_x, up, up_experts])) = (gate, up) else { continue };
        if x == up_x && experts == up_experts && same_type(graph, gate, up) {
            patch.replace(&product.nodes())?;
            let inputs = [x, gate, up, experts].map(|v| patch.tap(v));
            let fused = patch.wire(&node.name, ExpertGatedLinear {}, &inputs)?;
            patch.shunt(node.outputs[0], fused[0])?;
        }
    }
    Ok(())
}

/// Input, stack and experts of an `expert_linear` without bias.
fn match_unbiased(graph: &Graph, node: NodeId) -> Option<[ValueId; 3]> {
    let node = graph.node(node);
    // A fourth input is a bias, which the fused operator does not take.
    let inputs: [ValueId; 3] = node.inputs[..].try_into().ok()?;
    let apart = graph.value(inputs[1]).ty.dtype.packing().is_some_and(|packing| packing.zeros);
    (matches!(node.op, Op::ExpertLinear(_)) && !apart).then_some(inputs)
}
