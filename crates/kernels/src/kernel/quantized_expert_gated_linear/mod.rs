//! `quantized_expert_gated_linear`: `expert_gated_linear` with weights that are unpacked as they are read; planned as
//! there.

use super::Request;
use super::compose::{Joined, joined};
use super::expert_gated_linear;
use super::source::{Kernel, wrong_op};
use super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined = joined!(
    "expert_gated_linear/portable.wgsl",
    "expert_linear/places.wgsl",
    "linear/reads.wgsl",
    "gated_linear/gated.wgsl",
    "quantized_expert_gated_linear/bindings.wgsl",
    "weights/two_quantized.wgsl"
);
const KERNEL: Kernel = Kernel {
    name: "quantized_expert_gated_linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    ..expert_gated_linear::KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedExpertGatedLinear(op) = request.op else { return Err(wrong_op(request)) };
    let gate = Weight::packed(request, 1, op.packing())?;
    let up = Weight::packed(request, gate.after(), op.packing())?;
    expert_gated_linear::plan_with(&KERNEL, request, [&gate, &up])
}
