//! `quantized_gated_linear/subgroup`: planned with the other products by octets.

use super::super::Request;
use super::super::compose::{Joined, joined};
use super::super::product;
use super::super::source::{Kernel, wrong_op};
use super::super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined = joined!(
    "product/product.wgsl",
    "product/packed.wgsl",
    "quantized_gated_linear/subgroup.wgsl",
    "gated_linear/outputs.wgsl"
);
const KERNEL: Kernel = Kernel {
    name: "quantized_gated_linear/subgroup",
    file: TEXT.file,
    text: TEXT.text,
    math: true,
    ..product::KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedGatedLinear(op) = request.op else { return Err(wrong_op(request)) };
    let gate = Weight::packed(request, 1, op.packing())?;
    let up = Weight::packed(request, gate.after(), op.packing())?;
    product::gated(&KERNEL, request, [&gate, &up])
}
