//! `expert_linear`: launch planner. Workgroup `(x, y)` stands for outputs `4·x` to `4·x + 3` of some of the places where
//! an expert was chosen when there are few, and for tiles of 32 outputs and 32 places of some of the experts when there
//! are many. A stack beyond one binding is split by experts, with one launch for each part.
//!
//! A place is a row together with one of the experts that were chosen for it: `rows × slots` of them. Each place is a
//! product of a row with the matrix of its expert. With many places, those of one expert are collected, so that its
//! weights are read for a tile of them at a time.

use super::Request;
use super::compose::{FixedComposition, joined};
use super::linear::{chain, run};
use super::source::{KernelSource, constant, plan as planned, single_workgroup, wrong_op};
use super::weights::{BoundWeight, PART_ROWS};
use crate::axis::Axis;
use crate::plan::NodePlan;
use tapml_graph::{Dim, Error, Extent, Op, Result};

/// Places and outputs of a tile.
const TILE: u32 = 32;
/// Outputs of a workgroup when there are few places.
const OUTPUTS: u32 = PART_ROWS;
/// Invocations of a workgroup.
const LANES: u32 = 64;
/// Places for each expert, in the mean, up to which they are treated one by one: `portable.wgsl`.
const SKINNY_PLACES: u32 = 4;
/// Elements along K of a tile at a time.
const DEPTH: u32 = 16;

/// For plain weights.
const TEXT: FixedComposition = joined!(
    "expert_linear/portable.wgsl",
    "expert_linear/places.wgsl",
    "linear/reads.wgsl",
    "expert_linear/bindings.wgsl",
    "weights/one.wgsl"
);
/// Two tiles, a number for each lane, a counter, and the places of a tile lie in workgroup memory.
const KERNEL: KernelSource = KernelSource {
    name: "expert_linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    weights: true,
    norm: false,
    formula: "",
    math: false,
    lanes: LANES,
    workgroup_memory: 2 * TILE * DEPTH * 4 + 4 * LANES + 4 + 4 * TILE,
};
/// For packed weights.
const PACKED_TEXT: FixedComposition = joined!(
    "expert_linear/portable.wgsl",
    "expert_linear/places.wgsl",
    "linear/reads.wgsl",
    "expert_linear/packed_bindings.wgsl",
    "weights/one_packed.wgsl"
);
/// A name of its own, so that reports tell both apart.
const PACKED: KernelSource =
    KernelSource { name: "expert_linear/packed", file: PACKED_TEXT.file, text: PACKED_TEXT.text, ..KERNEL };

/// A packed weight is unpacked as it is read, by the text that binds its sections.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let w = BoundWeight::from_input(request, 1)?;
    plan_with(if w.is_packed() { &PACKED } else { &KERNEL }, request, &w)
}

/// The plan by one of both kernels; a launch for each part of the stack.
fn plan_with(kernel: &KernelSource, request: &Request, w: &BoundWeight) -> Result<NodePlan> {
    let Op::ExpertLinear(_) = request.op else { return Err(wrong_op(request)) };
    let (x, chosen) = (&request.inputs[0], 2);
    let bias = request.inputs.get(chosen + 1);
    let (rows, experts) = (&x.shape[0], constant("the number of experts", &w.ty.shape[0])?);
    let (outputs, k) =
        (constant("the outputs", &w.ty.shape[1])?, constant("the row length", &w.ty.shape[2])?);
    let slots = constant("the experts of a row", &request.inputs[chosen].shape[1])?;
    let mut launches = Vec::new();
    for part in w.split_stack(request.info)? {
        let launch = kernel.launch(x.dtype, x.dtype)?.input(0).weight(w, &part)?.input(chosen);
        let launch = launch.optional(chosen + 1, bias).output(0).rows(rows)?.set("K", k).set("RUN", run(k));
        let launch = launch.set("O", outputs).set("SLOTS", slots);
        // The input has a row for each place, or one row for all experts that were chosen for it.
        let launch = launch.set("SHARED", u32::from(x.shape[1] == w.ty.shape[2])).set("EXPERTS", experts);
        // A launch leaves places alone whose expert is not in its part.
        let launch = launch.set("FIRST", part.first).set("COUNT", part.rows);
        let launch = launch.with_presence(["HAS_BIAS", "B_DTYPE"], bias)?.with_setting_sizes(request.setting);
        let groups = Extent::from_dim(u64::from(outputs.div_ceil(OUTPUTS)));
        launches.push(launch.groups([groups, sharers(rows, slots)?, single_workgroup()]));
    }
    let plan = planned(kernel, launches, chain(k)).with_axes([skinny_axis(rows, slots, experts)?]);
    Ok(NodePlan { constants: w.stand_in(Some(bias)), ..plan })
}

/// Few places for each expert in the mean, or many: they are treated in two ways.
pub fn skinny_axis(rows: &Dim, slots: u32, experts: u32) -> Result<Axis> {
    let places = rows.checked_mul(u64::from(slots));
    let places =
        places.ok_or_else(|| Error::unsupported(format!("{slots} experts for each of {rows} rows")))?;
    Ok(Axis::limit("chosen experts", places, u64::from(SKINNY_PLACES) * u64::from(experts)))
}

/// Workgroups that share the places, or the experts, of the same outputs: one for each slot of a single row, and as many
/// more for every further tile of rows. With many rows, most experts have one of their own.
pub fn sharers(rows: &Dim, slots: u32) -> Result<Extent> {
    let overflow = || Error::unsupported(format!("{slots} experts for each of {rows} rows"));
    // 31 rows more, so that a single row has a workgroup for each slot.
    let padded = rows.checked_add(&Dim::from(u64::from(TILE - 1))).ok_or_else(overflow)?;
    Ok(Extent::ceil_div(padded.checked_mul(u64::from(slots)).ok_or_else(overflow)?, TILE))
}
