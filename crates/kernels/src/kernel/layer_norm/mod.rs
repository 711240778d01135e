//! `layer_norm`: launch planner. Workgroup `x` treats row `x`. Without a bias, four zero bytes are bound in its place.

use super::Request;
use super::source::{Kernel, constant, one, plan as planned, weight_code, wrong_op};
use crate::plan::{Arg, NodePlan};
use tapml_graph::{Extent, Op, Result};

/// Invocations of a workgroup; each adds up every 256th element.
const LANES: u32 = 256;

const KERNEL: Kernel = Kernel {
    name: "layer_norm/portable",
    file: "layer_norm/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: true,
    math: false,
    lanes: LANES,
    workgroup_memory: 4 * LANES,
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::LayerNorm(op) = request.op else { return Err(wrong_op(request)) };
    let (x, w, bias) = (&request.inputs[0], &request.inputs[1], request.inputs.get(2));
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1);
    let launch = match bias {
        Some(_) => launch.input(2),
        None => launch.read(Arg::Constant(0)),
    };
    let launch = launch.output(0).rows(rows)?.weight_dtype(w.dtype)?.set("K", width).set("EPS", op.eps);
    let launch = launch.set("HAS_BIAS", u32::from(bias.is_some()));
    let launch = launch.set("B_DTYPE", bias.map_or(Ok(0), |b| weight_code(b.dtype))?);
    let launches = vec![launch.groups([Extent::of(rows.clone()), one(), one()])];
    let constants = if bias.is_none() { vec![vec![0; 4]] } else { Vec::new() };
    Ok(NodePlan { constants, ..planned(&KERNEL, launches, width.div_ceil(LANES)) })
}
