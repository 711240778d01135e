//! `wkv`: launch planner. Workgroup `(x, y)` holds columns `64·y` to `64·y + 63` of the state of head `x`. The decays
//! may be a weight or an activation: they are read as weights are, by their dtype.
//!
//! The operator is the time mixing of RWKV-5 and RWKV-6.

use super::Request;
use super::source::{KernelSource, constant, weight_code, wrong_op};
use super::state::{LANES, Recurrence, Texts, own_or_index};
use crate::plan::NodePlan;
use tapml_graph::op::Wkv;
use tapml_graph::{Op, Result};

/// Binds five inputs, then the outputs that [`Recurrence`] binds.
const KERNEL: KernelSource = KernelSource {
    weights: true,
    math: true,
    lanes: LANES,
    workgroup_memory: 4 * 256 * 4 + 4 * LANES,
    ..KernelSource::flat(
        "wkv/portable",
        "paged_recurrence/single.wgsl+wkv/single.wgsl+wkv/portable.wgsl",
        concat!(
            include_str!("../paged_recurrence/single.wgsl"),
            include_str!("single.wgsl"),
            include_str!("portable.wgsl")
        ),
    )
};

/// The same over rows of several texts.
const SEVERAL: KernelSource = KernelSource {
    name: "paged_recurrence/portable",
    file: "paged_recurrence/several.wgsl+wkv/several.wgsl+wkv/portable.wgsl",
    text: concat!(
        include_str!("../paged_recurrence/several.wgsl"),
        include_str!("several.wgsl"),
        include_str!("portable.wgsl")
    ),
    ..KERNEL
};

/// The plan of `wkv`; input 5 is the state before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Wkv(op) = request.op else { return Err(wrong_op(request)) };
    plan_texts(op, request, None)
}

/// The plan over rows of several texts, or of one.
pub fn plan_texts(op: &Wkv, request: &Request, texts: Option<&Texts>) -> Result<NodePlan> {
    let (r, w, u) = (&request.inputs[0], &request.inputs[3], &request.inputs[4]);
    let width = constant("the row length", &r.shape[1])?;
    let kernel = if texts.is_some() { &SEVERAL } else { &KERNEL };
    let launch = kernel.launch(r.dtype, r.dtype)?.input(0).input(1).input(2).input(3);
    let launch = launch.read(own_or_index(texts, 4)).weight_dtype(w.dtype)?.set("K", width);
    let launch = if texts.is_some() { launch } else { launch.set("U_DTYPE", weight_code(u.dtype)?) };
    // Decays of one row serve all rows.
    let launch = launch.set("W_STRIDE", if w.shape.len() == 2 { width } else { 0 });
    let recurrence = Recurrence { heads: width / op.head_dim, size: [op.head_dim; 2], texts };
    recurrence.plan(request, kernel, launch, 5)
}
