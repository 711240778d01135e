//! `quantized_expert_linear`: `expert_linear` with weights that are unpacked as they are read; planned as there.

use super::Request;
use super::compose::{Joined, joined};
use super::expert_linear;
use super::source::{Kernel, wrong_op};
use super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined = joined!(
    "expert_linear/portable.wgsl",
    "expert_linear/places.wgsl",
    "linear/reads.wgsl",
    "quantized_expert_linear/bindings.wgsl",
    "weights/one_quantized.wgsl"
);
const KERNEL: Kernel = Kernel {
    name: "quantized_expert_linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    ..expert_linear::KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedExpertLinear(op) = request.op else { return Err(wrong_op(request)) };
    expert_linear::plan_with(&KERNEL, request, &Weight::packed(request, 1, op.packing())?)
}
