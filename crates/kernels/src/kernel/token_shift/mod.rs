//! `token_shift`: launch planner. First the rows, then the state after them, which may lie in the buffer of the state
//! before. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, elements, plan as planned, rows_and_width, wrong_op};
use crate::axis::Axis;
use crate::plan::{InPlace, NodePlan};
use tapml_graph::{Dim, Op, Result};

/// Binds rows and the state before, then the shifted rows.
const KERNEL: KernelSource =
    KernelSource::flat("token_shift/portable", "token_shift/portable.wgsl", include_str!("portable.wgsl"));
/// Writes the last row as the state after.
const STATE_WRITE: KernelSource =
    KernelSource::flat("token_shift/keep", "token_shift/keep.wgsl", include_str!("keep.wgsl"));

/// The plan of `token_shift`: each row becomes the one before it, the first the state.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::TokenShift(_) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let (rows, width) = (&x.shape[0], rows_and_width(&request.inputs[1])?.1);
    let shift = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1).output(0).rows(rows)?.set("K", width);
    let keep = STATE_WRITE.launch(x.dtype, x.dtype)?.input(0).output(1).rows(rows)?.set("K", width);
    let launches = vec![shift.flat(elements(rows, width)?), keep.flat(Dim::from(u64::from(width)))];
    // No copy is needed: the first launch reads the state, and the second overwrites all of it.
    let in_place = vec![InPlace { input: 1, output: 1, copy: None }];
    Ok(NodePlan { in_place, ..planned(&KERNEL, launches, 0).with_axes([Axis::cached_axis()]) })
}
