//! `positions`: launch planner. One invocation per element; workgroup `x` treats elements `1024·x` to `1024·x + 1023`.

use super::Request;
use super::source::{KernelSource, plan as planned, wrong_op};
use crate::axis::Axis;
use crate::plan::NodePlan;
use tapml_graph::{DType, Op, Result};

/// Binds the output alone.
const KERNEL: KernelSource =
    KernelSource::flat("positions/portable", "positions/portable.wgsl", include_str!("portable.wgsl"));

/// Binds positions that are given, then the output.
const GIVEN: KernelSource =
    KernelSource::flat("positions/given", "positions/given.wgsl", include_str!("given.wgsl"));

/// The plan of `positions`: row `i` of a run has position `p + i`, or the one that is given, and an offset.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Positions(op) = request.op else { return Err(wrong_op(request)) };
    let rows = &request.outputs[0].shape[0];
    if !request.inputs.is_empty() {
        let launch = GIVEN.launch(DType::F32, DType::F32)?.input(0).output(0).rows(rows)?;
        return Ok(planned(&GIVEN, vec![launch.set("OFFSET", op.offset).flat(rows.clone())], 0));
    }
    // The dtype plays no part: the text writes integers.
    let launch = KERNEL.launch(DType::F32, DType::F32)?.output(0).rows(rows)?.set("OFFSET", op.offset);
    Ok(planned(&KERNEL, vec![launch.flat(rows.clone())], 0).with_axes([Axis::cached_axis()]))
}
