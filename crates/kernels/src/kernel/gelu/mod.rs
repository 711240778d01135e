//! `gelu`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{Kernel, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::op::GeluForm;
use tapml_graph::{Op, Result};

const KERNEL: Kernel = Kernel {
    math: true,
    ..Kernel::flat("gelu/portable", "gelu/portable.wgsl", include_str!("portable.wgsl"))
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Gelu(op) = request.op else { return Err(wrong_op(request)) };
    let ty = &request.inputs[0];
    let (rows, width) = rows_and_width(ty)?;
    let launch = KERNEL.launch(ty.dtype, ty.dtype)?.input(0).output(0).rows(&rows)?.set("K", width);
    let launch = launch.set("TANH", u32::from(op.approximate == GeluForm::Tanh));
    Ok(planned(&KERNEL, vec![launch.flat(elements(&rows, width)?)], 1))
}
