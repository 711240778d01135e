//! `quantized_gated_linear`: `gated_linear` with weights that are unpacked as they are read; planned as there.

pub mod subgroup;

use super::Request;
use super::compose::{Joined, joined};
use super::gated_linear;
use super::source::{Kernel, wrong_op};
use super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined = joined!(
    "gated_linear/portable.wgsl",
    "linear/reads.wgsl",
    "gated_linear/gated.wgsl",
    "quantized_gated_linear/bindings.wgsl",
    "weights/two_quantized.wgsl"
);
const KERNEL: Kernel = Kernel {
    name: "quantized_gated_linear/portable",
    file: TEXT.file,
    text: TEXT.text,
    ..gated_linear::KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedGatedLinear(op) = request.op else { return Err(wrong_op(request)) };
    let gate = Weight::packed(request, 1, op.packing())?;
    let up = Weight::packed(request, gate.after(), op.packing())?;
    gated_linear::plan_with(&KERNEL, request, [&gate, &up])
}
