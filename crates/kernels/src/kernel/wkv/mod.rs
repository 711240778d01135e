//! `wkv`: launch planner. Workgroup `(x, y)` holds columns `64·y` to `64·y + 63` of the state of head `x`. The decays
//! may be a weight or an activation: they are read as weights are, by their dtype.
//!
//! The operator is the time mixing of RWKV-5 and RWKV-6.

use super::Request;
use super::source::{KernelSource, constant, weight_code, wrong_op};
use super::state::{LANES, Recurrence};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// Binds five inputs, then the outputs that [`Recurrence`] binds.
const KERNEL: KernelSource = KernelSource {
    weights: true,
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * 256 * 4 + 4 * LANES,
    ..KernelSource::flat("wkv/portable", "wkv/portable.wgsl", include_str!("portable.wgsl"))
};

/// The plan of `wkv`; input 5 is the state before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Wkv(op) = request.op else { return Err(wrong_op(request)) };
    let (r, w, u) = (&request.inputs[0], &request.inputs[3], &request.inputs[4]);
    let width = constant("the row length", &r.shape[1])?;
    let launch = KERNEL.launch(r.dtype, r.dtype)?.input(0).input(1).input(2).input(3).input(4);
    let launch = launch.weight_dtype(w.dtype)?.set("U_DTYPE", weight_code(u.dtype)?).set("K", width);
    // Decays of one row serve all rows.
    let launch = launch.set("W_STRIDE", if w.shape.len() == 2 { width } else { 0 });
    let recurrence = Recurrence { heads: width / op.head_dim, size: [op.head_dim; 2] };
    recurrence.plan(request, &KERNEL, launch, 5)
}
