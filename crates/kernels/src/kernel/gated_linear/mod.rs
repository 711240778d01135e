//! `gated_linear`: launch planner. Workgroup `(x, y)` stands for outputs `4·x` to `4·x + 3` of all rows when there
//! are few, and for a tile of 16 outputs and 32 rows when there are many, unless a setting says otherwise. Weights
//! beyond one binding are split by rows, both alike, with one launch for each part.
//!
//! The operator is `silu(x · gateᵀ) · (x · upᵀ)`, element by element. Both products are made together, so that
//! neither is stored.

pub mod subgroup;

use super::Request;
use super::compose::{FixedComposition, joined};
use super::linear::{chain, grid, run};
use super::source::{KernelSource, constant, plan as planned, wrong_op};
use super::weights::BoundWeight;
use crate::axis::Axis;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// For plain weights.
const TEXT: FixedComposition = joined!(
    "gated_linear/portable.wgsl",
    "linear/reads.wgsl",
    "gated_linear/gated.wgsl",
    "gated_linear/bindings.wgsl",
    "weights/two.wgsl"
);
/// A gate needs the bounded exponential of the `math` prelude.
const KERNEL: KernelSource = KernelSource {
    name: "gated_linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: 64,
    workgroup_memory: 2 * 128 * 16,
};
/// For packed weights.
const PACKED_TEXT: FixedComposition = joined!(
    "gated_linear/portable.wgsl",
    "linear/reads.wgsl",
    "gated_linear/gated.wgsl",
    "gated_linear/packed_bindings.wgsl",
    "weights/two_packed.wgsl"
);
/// A name of its own, so that reports tell both apart.
const PACKED: KernelSource =
    KernelSource { name: "gated_linear/packed", file: PACKED_TEXT.file, text: PACKED_TEXT.text, ..KERNEL };

/// Packed weights are unpacked as they are read, by the text that binds their sections.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let [gate, up] = [BoundWeight::from_input(request, 1)?, BoundWeight::from_input(request, 2)?];
    plan_with(if gate.is_packed() { &PACKED } else { &KERNEL }, request, [&gate, &up])
}

/// The plan by one of both kernels; a launch for each part.
fn plan_with(kernel: &KernelSource, request: &Request, [gate, up]: [&BoundWeight; 2]) -> Result<NodePlan> {
    let Op::GatedLinear(_) = request.op else { return Err(wrong_op(request)) };
    let x = &request.inputs[0];
    let (rows, k) = (&x.shape[0], constant("the row length", &x.shape[1])?);
    let width = constant("the number of outputs", &gate.ty.shape[0])?;
    let mut launches = Vec::new();
    // Gate and up are of one type, so that the parts of one are those of the other.
    for part in gate.split(request.info)? {
        let launch =
            kernel.launch(x.dtype, x.dtype)?.input(0).weight(gate, &part)?.weight(up, &part)?.output(0);
        let launch = launch.rows(rows)?.set("K", k).set("RUN", run(k));
        let launch = launch.set("O", part.rows).set("FIRST", part.first).set("WIDTH", width);
        let launch = launch.with_setting_sizes(request.setting);
        launches.push(launch.groups(grid(part.rows, rows, request.setting)));
    }
    let plan = planned(kernel, launches, chain(k)).with_axes([Axis::skinny_rows(rows)]);
    // One constant stands for the zeros of both weights.
    Ok(NodePlan { constants: gate.stand_in(None), ..plan })
}
