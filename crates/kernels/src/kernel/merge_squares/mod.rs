//! `merge_squares`: launch planner. One invocation per element of the output; workgroup `x` treats elements `1024·x` to
//! `1024·x + 1023`.
//!
//! Squares of neighbouring patches become one row each. Elements are moved, and nothing is computed.

use super::Request;
use super::source::{KernelSource, elements, plan as planned, rows_and_width, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds the input, then the output.
const KERNEL: KernelSource = KernelSource::flat(
    "merge_squares/portable",
    "merge_squares/portable.wgsl",
    include_str!("portable.wgsl"),
);

/// The plan of `merge_squares`; rows of the output are squares.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::MergeSquares(op) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let (squares, width) = rows_and_width(&request.outputs[0])?;
    let (_, columns) = rows_and_width(x)?;
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).output(0).rows(&squares)?;
    let launch = launch.set("COLUMNS", columns).set("DOWN", op.down).set("ACROSS", op.across);
    let launch = launch.set("SIDE", op.side).set("LEAD", op.lead);
    Ok(planned(&KERNEL, vec![launch.flat(elements(&squares, width)?)], 0))
}
