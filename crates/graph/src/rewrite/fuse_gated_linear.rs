//! `fuse_gated_linear`: `mul(silu(linear(x, gate)), linear(x, up))`, factors in either order, becomes
//! `gated_linear(x, gate, up)` where nothing else uses the values between.

use super::Patch;
use super::uses::{Uses, gated_product, same_type};
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{GatedLinear, Op};

/// One edit for each such product.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    let uses = Uses::from_graph(graph);
    for (i, node) in graph.nodes().iter().enumerate() {
        let Some(product) = gated_product(graph, &uses, NodeId(i as u32)) else { continue };
        let plain = |node| plain_linear(graph, graph.node(node));
        let (Some([x, gate]), Some([up_x, up])) = (plain(product.gate), plain(product.up)) else { continue };
        // `gated_linear` takes weights of one type alone.
        if x == up_x && same_type(graph, gate, up) {
            patch.replace(&product.nodes())?;
            let inputs = [x, gate, up].map(|v| patch.tap(v));
            let fused = patch.wire(&node.name, GatedLinear {}, &inputs)?;
            patch.shunt(node.outputs[0], fused[0])?;
        }
    }
    Ok(())
}

/// Input and weight of a `linear` without bias whose output has the dtype of its input.
fn plain_linear(graph: &Graph, node: &Node) -> Option<[ValueId; 2]> {
    let Op::Linear(linear) = &node.op else { return None };
    let [x, weight] = node.inputs[..] else { return None };
    let keeps_dtype = linear.dtype.is_none_or(|d| d == graph.value(x).ty.dtype);
    keeps_dtype.then_some([x, weight])
}
