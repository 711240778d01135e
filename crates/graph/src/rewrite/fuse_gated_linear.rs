//! `fuse_gated_linear`: `mul(silu(linear(x, gate)), linear(x, up))`, factors in either order, becomes
//! `gated_linear(x, gate, up)` where nothing else uses the values between.

use super::Patch;
use super::uses::{Uses, producer};
use crate::error::Result;
use crate::graph::{Graph, Node, NodeId, ValueId};
use crate::op::{GatedLinear, Op};

/// One edit for each such product.
pub fn apply(graph: &Graph, patch: &mut Patch<'_>) -> Result<()> {
    let uses = Uses::of(graph);
    for (i, node) in graph.nodes().iter().enumerate() {
        if let Some(found) = matches(graph, &uses, NodeId(i as u32)) {
            patch.replace(&found.nodes)?;
            let inputs = found.inputs.map(|v| patch.tap(v));
            let fused = patch.wire(&node.name, GatedLinear {}, &inputs)?;
            patch.shunt(node.outputs[0], fused[0])?;
        }
    }
    Ok(())
}

struct Match {
    nodes: [NodeId; 4],
    /// `x`, `gate`, `up`.
    inputs: [ValueId; 3],
}

fn matches(graph: &Graph, uses: &Uses, mul: NodeId) -> Option<Match> {
    let node = graph.node(mul);
    if !matches!(node.op, Op::Mul(_)) {
        return None;
    }
    let [a, b] = node.inputs[..] else { return None };
    gated(graph, uses, mul, a, b).or_else(|| gated(graph, uses, mul, b, a))
}

/// The match in which `activated` is the output of `silu` and `plain` that of the up projection.
fn gated(graph: &Graph, uses: &Uses, mul: NodeId, activated: ValueId, plain: ValueId) -> Option<Match> {
    let (silu, up) = (producer(graph, activated)?, producer(graph, plain)?);
    if !matches!(graph.node(silu).op, Op::Silu(_)) {
        return None;
    }
    let projected = graph.node(silu).inputs[0];
    let gate = producer(graph, projected)?;
    let (gate_node, up_node) = (graph.node(gate), graph.node(up));
    let [x, gate_weight] = plain_linear(graph, gate_node)?;
    let [up_x, up_weight] = plain_linear(graph, up_node)?;
    let same_types = graph.value(gate_weight).ty == graph.value(up_weight).ty;
    let inside = uses.only(activated, mul) && uses.only(plain, mul) && uses.only(projected, silu);
    let found = x == up_x && same_types && inside;
    found.then_some(Match { nodes: [gate, up, silu, mul], inputs: [x, gate_weight, up_weight] })
}

/// Input and weight of a `linear` without bias whose output has the dtype of its input.
fn plain_linear(graph: &Graph, node: &Node) -> Option<[ValueId; 2]> {
    let Op::Linear(linear) = &node.op else { return None };
    let [x, weight] = node.inputs[..] else { return None };
    let keeps_dtype = linear.dtype.is_none_or(|d| d == graph.value(x).ty.dtype);
    keeps_dtype.then_some([x, weight])
}
