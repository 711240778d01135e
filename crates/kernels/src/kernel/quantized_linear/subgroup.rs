//! `quantized_linear/subgroup`: planned with the other products by octets.

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
    "quantized_linear/subgroup.wgsl",
    "linear/outputs.wgsl"
);
const KERNEL: Kernel = Kernel {
    name: "quantized_linear/subgroup",
    file: TEXT.file,
    text: TEXT.text,
    math: false,
    ..product::KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedLinear(op) = request.op else { return Err(wrong_op(request)) };
    product::linear(&KERNEL, request, &Weight::packed(request, 1, op.packing())?)
}
