//! `selective_scan`: launch planner. Workgroup `(x, y)` holds columns `64·y` to `64·y + 63` of the state of head `x`.
//!
//! The operator is the recurrence of state space models such as Mamba-2. Rows are treated one after the other.

use super::Request;
use super::source::{KernelSource, weight_code, wrong_op};
use super::state::{LANES, Recurrence};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds six inputs, then the outputs that [`Recurrence`] binds.
const KERNEL: KernelSource = KernelSource {
    math: true,
    lanes: LANES,
    workgroup_memory: 2 * 256 * 4 + 4 * LANES,
    ..KernelSource::flat(
        "selective_scan/portable",
        "selective_scan/portable.wgsl",
        include_str!("portable.wgsl"),
    )
};

/// The plan of `selective_scan`; input 6 is the state before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::SelectiveScan(op) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let launch = (0..6).fold(KERNEL.launch(x.dtype, x.dtype)?, |launch, index| launch.input(index));
    // Both are weights of the checkpoint, each with a storage of its own.
    let launch = launch.set("A_DTYPE", weight_code(request.inputs[2].dtype)?);
    let launch = launch.set("D_DTYPE", weight_code(request.inputs[5].dtype)?);
    let launch = launch.set("HEADS", op.heads).set("GROUPS", op.groups);
    let recurrence = Recurrence { heads: op.heads, size: [op.state, op.head_dim] };
    recurrence.plan(request, &KERNEL, launch, 6)
}
