//! `lerp`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`. One
//! kernel reads `t` as activations, another as a weight that serves every row.

use super::Request;
use super::source::{KernelSource, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// For a share of each element.
const KERNEL: KernelSource = KernelSource::flat(
    "lerp/portable",
    "lerp/portable.wgsl+lerp/share.wgsl",
    concat!(include_str!("portable.wgsl"), include_str!("share.wgsl")),
);

/// For one row of shares, which is a weight.
const ROW: KernelSource = KernelSource {
    weights: true,
    ..KernelSource::flat(
        "lerp/row",
        "lerp/portable.wgsl+lerp/share_row.wgsl",
        concat!(include_str!("portable.wgsl"), include_str!("share_row.wgsl")),
    )
};

/// The plan of `lerp`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Lerp(_) = request.op else { return Err(wrong_op(request)) };
    let (x, t) = (&request.inputs[0], &request.inputs[2]);
    let (rows, width) = rows_and_width(x)?;
    let by_row = t.shape.len() == 1;
    let kernel = if by_row { &ROW } else { &KERNEL };
    let launch = kernel.launch(x.dtype, x.dtype)?.input(0).input(1).input(2).output(0).rows(&rows)?;
    let launch = if by_row { launch.weight_dtype(t.dtype)? } else { launch };
    Ok(planned(kernel, vec![launch.set("K", width).flat(elements(&rows, width)?)], 2))
}
