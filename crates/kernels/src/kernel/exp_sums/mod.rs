//! `exp_sums`: launch planner. Workgroup `(x, y)` treats part `x` of row `y`.
//!
//! Which elements a lane adds up, and the tree that joins the lanes, depend on the part's length alone.

use super::Request;
use super::source::{KernelSource, constant, plan as planned, single_workgroup, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Extent, Op, Result};

/// Invocations of a workgroup.
const LANES: u32 = 256;

/// Binds the numbers, the scales, then maxima and sums.
const KERNEL: KernelSource = KernelSource {
    name: "exp_sums/portable",
    file: "exp_sums/portable.wgsl",
    text: include_str!("portable.wgsl"),
    weights: false,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * LANES + 8,
};

/// The plan of `exp_sums`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::ExpSums(op) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let (rows, width) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let count = width.div_ceil(op.part);
    let launch = KERNEL.launch(x.dtype, x.dtype)?.input(0).input(1).output(0).output(1).rows(rows)?;
    let launch = launch.set("WIDTH", width).set("PART", op.part).set("COUNT", count);
    let groups = [Extent::from_dim(u64::from(count)), Extent::from_dim(rows.clone()), single_workgroup()];
    // Of each lane, and then of the lanes.
    let chain = op.part.min(width).div_ceil(LANES) + LANES.ilog2();
    Ok(planned(&KERNEL, vec![launch.groups(groups)], chain))
}
