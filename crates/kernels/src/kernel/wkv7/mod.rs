//! `wkv7`: launch planner. Workgroup `(x, y)` holds columns `64·y` to `64·y + 63` of the state of head `x`.
//!
//! The operator is the time mixing of RWKV-7. Rows are treated one after the other, since each changes the state.

use super::Request;
use super::source::{KernelSource, constant, wrong_op};
use super::state::{LANES, Recurrence};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds six inputs of rows, then the outputs that [`Recurrence`] binds.
const KERNEL: KernelSource = KernelSource {
    math: true,
    lanes: LANES,
    workgroup_memory: 5 * 256 * 4 + 2 * 4 * LANES,
    ..KernelSource::flat("wkv7/portable", "wkv7/portable.wgsl", include_str!("portable.wgsl"))
};

/// The plan of `wkv7`; input 6 is the state before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Wkv7(op) = request.op else { return Err(wrong_op(request)) };
    let r = &request.inputs[0];
    let width = constant("the row length", &r.shape[1])?;
    let launch = (0..6).fold(KERNEL.launch(r.dtype, r.dtype)?, |launch, index| launch.input(index));
    let recurrence = Recurrence { heads: width / op.head_dim, size: [op.head_dim; 2] };
    recurrence.plan(request, &KERNEL, launch.set("K", width), 6)
}
