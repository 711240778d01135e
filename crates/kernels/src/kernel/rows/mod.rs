//! `rows`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds the rows, then the output.
const KERNEL: KernelSource =
    KernelSource::flat("rows/portable", "rows/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `rows`, which takes a range of them.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Rows(op) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let (taken, width) = rows_and_width(&request.outputs[0])?;
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).output(0).rows(&x.shape[0])?.set("K", width);
    let launch = launch.set("FIRST", op.first).set("COUNT", op.count);
    Ok(planned(&KERNEL, vec![launch.flat(elements(&taken, width)?)], 0))
}
