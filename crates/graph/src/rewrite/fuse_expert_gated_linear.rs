//! `fuse_expert_gated_linear`: `mul(silu(expert_linear(x, gate, experts)), expert_linear(x, up, experts))`, factors in
//! either order, becomes `expert_gated_linear(x, gate, up, experts)` where nothing else uses the values between.

use super::Patch;
use super::uses::{Uses, gated_product};
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{ExpertGatedLinear, Op};

/// One edit for each such product.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    let uses = Uses::of(graph);
    for (i, node) in graph.nodes().iter().enumerate() {
        let Some(product) = gated_product(graph, &uses, NodeId(i as u32)) else { continue };
        let (gate, up) = (unbiased(graph.node(product.gate)), unbiased(graph.node(product.up)));
        let (Some([x, gate, experts]), Some([up_x, up, up_experts])) = (gate, up) else { continue };
        if x == up_x && experts == up_experts && graph.value(gate).ty == graph.value(up).ty {
            patch.replace(&product.nodes())?;
            let inputs = [x, gate, up, experts].map(|v| patch.tap(v));
            let fused = patch.wire(&node.name, ExpertGatedLinear {}, &inputs)?;
            patch.shunt(node.outputs[0], fused[0])?;
        }
    }
    Ok(())
}

/// Input, stack and experts of an `expert_linear` without bias.
fn unbiased(node: &Node) -> Option<[ValueId; 3]> {
    matches!(node.op, Op::ExpertLinear(_)).then(|| node.inputs[..].try_into().ok())?
}
