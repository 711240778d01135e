//! `wkv_bonus`: launch planner. Workgroup `(x, y)` treats head `x` of row `y`.
//!
//! The operator gives what the row itself adds to its results in RWKV, beside the state.

use super::Request;
use super::source::{KernelSource, constant, plan as planned, single_workgroup, wrong_op};
use crate::plan::NodePlan;
use tapml_graph::{Extent, Op, Result};

/// Invocations of a workgroup; each adds up every 64th product.
const LANES: u32 = 64;

/// Binds four inputs, then the output.
const KERNEL: KernelSource = KernelSource {
    weights: true,
    lanes: LANES,
    workgroup_memory: 4 * LANES,
    ..KernelSource::flat("wkv_bonus/portable", "wkv_bonus/portable.wgsl", include_str!("portable.wgsl"))
};

/// The plan of `wkv_bonus`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::WkvBonus(op) = request.op else { return Err(wrong_op(request)) };
    let (r, u) = (&request.inputs[0], &request.inputs[3]);
    let (rows, width) = (&r.shape[0], constant("the row length", &r.shape[1])?);
    let launch = KERNEL.launch(r.dtype, r.dtype)?.input(0).input(1).input(2).input(3).output(0).rows(rows)?;
    let launch = launch.weight_dtype(u.dtype)?.set("K", width).set("HEAD_DIM", op.head_dim);
    let groups = [
        Extent::from_dim(u64::from(width / op.head_dim)),
        Extent::from_dim(rows.clone()),
        single_workgroup(),
    ];
    Ok(planned(&KERNEL, vec![launch.groups(groups)], op.head_dim.div_ceil(LANES)))
}
