//! `take_rows`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds the rows, their numbers, then the output.
const KERNEL: KernelSource =
    KernelSource::flat("take_rows/portable", "take_rows/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `take_rows`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::TakeRows(_) = request.op else { return Err(wrong_op(request)) };
    let y = &request.outputs[0];
    let (rows, width) = rows_and_width(y)?;
    let launch = KERNEL.launch(y.dtype, y.dtype)?.input(0).input(1).output(0).rows(&rows)?.set("K", width);
    Ok(planned(&KERNEL, vec![launch.flat(elements(&rows, width)?)], 0))
}
