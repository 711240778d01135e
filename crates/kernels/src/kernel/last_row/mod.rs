//! `last_row`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Dim, Op, Result};

/// Binds the rows, then the output.
const KERNEL: KernelSource =
    KernelSource::flat("last_row/portable", "last_row/portable.wgsl", include_str!("portable.wgsl"));

/// The plan of `last_row`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::LastRow(_) = request.op else { return Err(wrong_op(request)) };
    let ty = &request.inputs[0];
    // The kernel finds the last row by their number, which is known as it runs.
    let rows = &ty.shape[0];
    let (_, width) = rows_and_width(&request.outputs[0])?;
    let launch = KERNEL.launch(ty.dtype, ty.dtype)?.input(0).output(0).rows(rows)?.set("K", width);
    Ok(planned(&KERNEL, vec![launch.flat(Dim::from(u64::from(width)))], 0))
}
