//! `wkv7`: launch planner. Workgroup `(x, y)` holds columns `64·y` to `64·y + 63` of the state of head `x`.
//!
//! The operator is the time mixing of RWKV-7. Rows are treated one after the other, since each changes the state.

use super::Request;
use super::source::{KernelSource, constant, wrong_op};
use super::state::{LANES, Recurrence, Texts, own_or_index};
use crate::plan::NodePlan;
use tapml_graph::op::Wkv7;
use tapml_graph::{Op, Result};

/// Binds six inputs of rows, then the outputs that [`Recurrence`] binds.
const KERNEL: KernelSource = KernelSource {
    math: true,
    lanes: LANES,
    workgroup_memory: 5 * 256 * 4 + 2 * 4 * LANES,
    ..KernelSource::flat(
        "wkv7/portable",
        "paged_recurrence/single.wgsl+wkv7/single.wgsl+wkv7/portable.wgsl",
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
    file: "paged_recurrence/several.wgsl+wkv7/several.wgsl+wkv7/portable.wgsl",
    text: concat!(
        include_str!("../paged_recurrence/several.wgsl"),
        include_str!("several.wgsl"),
        include_str!("portable.wgsl")
    ),
    ..KERNEL
};

/// The plan of `wkv7`; input 6 is the state before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Wkv7(op) = request.op else { return Err(wrong_op(request)) };
    plan_texts(op, request, None)
}

/// The plan over rows of several texts, or of one.
pub fn plan_texts(op: &Wkv7, request: &Request, texts: Option<&Texts>) -> Result<NodePlan> {
    let kernel = if texts.is_some() { &SEVERAL } else { &KERNEL };
    let r = &request.inputs[0];
    let width = constant("the row length", &r.shape[1])?;
    let launch = (0..5).fold(kernel.launch(r.dtype, r.dtype)?, |launch, index| launch.input(index));
    let launch = launch.read(own_or_index(texts, 5)).set("K", width);
    let recurrence = Recurrence { heads: width / op.head_dim, size: [op.head_dim; 2], texts };
    recurrence.plan(request, kernel, launch, 6)
}
