//! `combine`: launch planner. One invocation per element of the sum; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, constant, elements, plan as planned, stand_in, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds the rows of all slots, their weights, then the sum.
const KERNEL: KernelSource =
    KernelSource::flat("combine/portable", "combine/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `combine`: the weighted sum of the results of a row's experts.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Combine(op) = request.op else { return Err(wrong_op(request)) };
    let (y, weights, z) = (&request.inputs[0], request.inputs.get(1), &request.outputs[0]);
    let (rows, width) = (&z.shape[0], constant("the row length", &z.shape[1])?);
    // The type of the weights stands in the place of that of the results, which is the type of `y`.
    let launch = KERNEL.launch(y.dtype, weights.map_or(y.dtype, |w| w.dtype))?.input(0).optional(1, weights);
    let launch = launch.output(0).rows(rows)?.set("K", op.k).set("WIDTH", width);
    let launch = launch.set("WEIGHTED", u32::from(weights.is_some()));
    let launches = vec![launch.flat(elements(rows, width)?)];
    Ok(NodePlan { constants: stand_in(&[weights]), ..planned(&KERNEL, launches, op.k) })
}
