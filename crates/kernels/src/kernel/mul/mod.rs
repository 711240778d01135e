//! `mul`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{Kernel, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const KERNEL: Kernel = Kernel::flat("mul/portable", "mul/portable.wgsl", include_str!("portable.wgsl"));

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Mul(_) = request.op else { return Err(wrong_op(request)) };
    let ty = &request.inputs[0];
    let (rows, width) = rows_and_width(ty)?;
    let launch = KERNEL.launch(ty.dtype, ty.dtype)?.input(0).input(1).output(0).rows(&rows)?.set("K", width);
    Ok(planned(&KERNEL, vec![launch.flat(elements(&rows, width)?)], 1))
}
