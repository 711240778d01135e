//! `expert_gated_linear`: launch planner. Workgroup `(x, y)` stands for outputs `4·x` to `4·x + 3` of some of the places
//! where an expert was chosen when there are few, and for tiles of 16 outputs and 32 places of some of the experts when
//! there are many. Stacks beyond one binding are split by experts, both alike, with one launch for each part.
//!
//! Places are those of `expert_linear`.

use super::Request;
use super::compose::{FixedComposition, joined};
use super::expert_linear::{sharers, skinny_axis};
use super::linear::{chain, run};
use super::source::{KernelSource, constant, plan as planned, single_workgroup, unserved_error, wrong_op};
use super::weights::{BoundWeight, PART_ROWS};
use crate::plan::NodePlan;
use tapml_graph::{Extent, Op, Result};

/// Places and columns of a tile.
const TILE: u32 = 32;
/// Outputs of a workgroup when there are few places.
const OUTPUTS: u32 = PART_ROWS;
/// Invocations of a workgroup.
const LANES: u32 = 64;

/// For plain weights.
const TEXT: FixedComposition = joined!(
    "expert_gated_linear/portable.wgsl",
    "expert_linear/places.wgsl",
    "linear/reads.wgsl",
    "gated_linear/gated.wgsl",
    "expert_gated_linear/bindings.wgsl",
    "weights/two.wgsl"
);
/// Tiles of both operands, a number for each lane, a counter, and the places of a tile lie in workgroup memory.
const KERNEL: KernelSource = KernelSource {
    name: "expert_gated_linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    weights: true,
    norm: false,
    formula: "",
    math: true,
    lanes: LANES,
    workgroup_memory: 2 * 128 * 16 + 4 * LANES + 4 + 4 * TILE,
};
/// For packed weights.
const PACKED_TEXT: FixedComposition = joined!(
    "expert_gated_linear/portable.wgsl",
    "expert_linear/places.wgsl",
    "linear/reads.wgsl",
    "gated_linear/gated.wgsl",
    "expert_gated_linear/packed_bindings.wgsl",
    "weights/two_packed.wgsl"
);
/// A name of its own, so that reports tell both apart.
const PACKED: KernelSource = KernelSource {
    name: "expert_gated_linear/packed",
    file: PACKED_TEXT.file,
    text: PACKED_TEXT.text,
    ..KERNEL
};

/// Packed weights are unpacked as they are read, by the text that binds their sections. Fails on zero points, for which there
/// is no binding left.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let [gate, up] = [BoundWeight::from_input(request, 1)?, BoundWeight::from_input(request, 2)?];
    // With them there would be nine storage buffers; WebGPU promises eight.
    if gate.packing().is_some_and(|packing| packing.zeros) {
        return Err(unserved_error(request));
    }
    plan_with(if gate.is_packed() { &PACKED } else { &KERNEL }, request, [&gate, &up])
}

/// The plan by one of both kernels; a launch for each part of the stacks.
fn plan_with(kernel: &KernelSource, request: &Request, [gate, up]: [&BoundWeight; 2]) -> Result<NodePlan> {
    let Op::ExpertGatedLinear(_) = request.op else { return Err(wrong_op(request)) };
    let (x, w, chosen) = (&request.inputs[0], gate.ty, 3);
    let (rows, experts) = (&x.shape[0], constant("the number of experts", &w.shape[0])?);
    let (outputs, k) = (constant("the outputs", &w.shape[1])?, constant("the row length", &w.shape[2])?);
    let slots = constant("the experts of a row", &request.inputs[chosen].shape[1])?;
    let mut launches = Vec::new();
    // Both stacks are of one type, so that they are cut alike.
    for part in gate.split_stack(request.info)? {
        let launch = kernel.launch(x.dtype, x.dtype)?.input(0).weight_without_zeros(gate, &part)?;
        let launch = launch.weight_without_zeros(up, &part)?.input(chosen);
        let launch = launch.output(0).rows(rows)?.set("K", k).set("RUN", run(k));
        let launch = launch.set("O", outputs).set("SLOTS", slots);
        let launch = launch.set("SHARED", u32::from(x.shape[1] == w.shape[2])).set("EXPERTS", experts);
        let launch =
            launch.set("FIRST", part.first).set("COUNT", part.rows).with_setting_sizes(request.setting);
        let groups = Extent::from_dim(u64::from(outputs.div_ceil(OUTPUTS)));
        launches.push(launch.groups([groups, sharers(rows, slots)?, single_workgroup()]));
    }
    Ok(planned(kernel, launches, chain(k)).with_axes([skinny_axis(rows, slots, experts)?]))
}
