//! `selective_scan`: launch planner. Workgroup `(x, y)` holds columns `64·y` to `64·y + 63` of the state of head `x`.
//!
//! The operator is the recurrence of state space models such as Mamba-2. Rows are treated one after the other.

use super::Request;
use super::source::{KernelSource, weight_code, wrong_op};
use super::state::{LANES, Recurrence, Texts, own_or_index};
use crate::plan::NodePlan;
use tapml_graph::op::SelectiveScan;
use tapml_graph::{Op, Result};

/// Binds six inputs, then the outputs that [`Recurrence`] binds.
const KERNEL: KernelSource = KernelSource {
    math: true,
    lanes: LANES,
    workgroup_memory: 2 * 256 * 4 + 4 * LANES,
    ..KernelSource::flat(
        "selective_scan/portable",
        "paged_recurrence/single.wgsl+selective_scan/single.wgsl+selective_scan/portable.wgsl",
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
    file: "paged_recurrence/several.wgsl+selective_scan/several.wgsl+selective_scan/portable.wgsl",
    text: concat!(
        include_str!("../paged_recurrence/several.wgsl"),
        include_str!("several.wgsl"),
        include_str!("portable.wgsl")
    ),
    ..KERNEL
};

/// The plan of `selective_scan`; input 6 is the state before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::SelectiveScan(op) = request.op else { return Err(wrong_op(request)) };
    plan_texts(op, request, None)
}

/// The plan over rows of several texts, or of one.
pub fn plan_texts(op: &SelectiveScan, request: &Request, texts: Option<&Texts>) -> Result<NodePlan> {
    let kernel = if texts.is_some() { &SEVERAL } else { &KERNEL };
    let x = &request.inputs[0];
    let launch = kernel.launch(x.dtype, x.dtype)?.input(0).read(own_or_index(texts, 1));
    let launch = (2..6).fold(launch, |launch, index| launch.input(index));
    // Both are weights of the checkpoint, each with a storage of its own.
    let launch = launch.set("A_DTYPE", weight_code(request.inputs[2].dtype)?);
    let launch = launch.set("D_DTYPE", weight_code(request.inputs[5].dtype)?);
    let launch = launch.set("HEADS", op.heads).set("GROUPS", op.groups);
    let recurrence = Recurrence { heads: op.heads, size: [op.state, op.head_dim], texts };
    recurrence.plan(request, kernel, launch, 6)
}
