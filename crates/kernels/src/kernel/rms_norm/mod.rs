//! `rms_norm`: launch planner. Workgroup `x` treats row `x`.

use super::Request;
use super::source::{Kernel, constant, one, plan as planned, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Extent, Op, Result};

/// Invocations of a workgroup; each adds up every 256th element.
const LANES: u32 = 256;

const KERNEL: Kernel = Kernel {
    name: "rms_norm/portable",
    file: "rms_norm/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: true,
    math: false,
    lanes: LANES,
    workgroup_memory: 4 * LANES,
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::RmsNorm(op) = request.op else { return Err(wrong_op(request)) };
    let (x, w) = (&request.inputs[0], &request.inputs[1]);
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1).output(0).rows(rows)?;
    let launch = launch.weight_dtype(w.dtype)?.set("K", width).set("EPS", op.eps);
    let launches = vec![launch.groups([Extent::of(rows.clone()), one(), one()])];
    Ok(planned(&KERNEL, launches, width.div_ceil(LANES)))
}
