//! `gated_linear/subgroup`: planned with the other products by octets.

use super::super::Request;
use super::super::compose::{FixedComposition, joined};
use super::super::product;
use super::super::source::{KernelSource, wrong_op};
use super::super::weights::BoundWeight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: FixedComposition = joined!(
    "product/product.wgsl",
    "product/plain.wgsl",
    "gated_linear/subgroup.wgsl",
    "gated_linear/outputs.wgsl"
);
const KERNEL: KernelSource = KernelSource {
    name: "gated_linear/subgroup",
    file: TEXT.file,
    text: TEXT.text,
    math: true,
    ..product::KERNEL
};

const PACKED_TEXT: FixedComposition = joined!(
    "product/product.wgsl",
    "product/packed.wgsl",
    "gated_linear/packed_subgroup.wgsl",
    "gated_linear/outputs.wgsl"
);
const PACKED: KernelSource = KernelSource {
    name: "gated_linear/packed_subgroup",
    file: PACKED_TEXT.file,
    text: PACKED_TEXT.text,
    ..KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::GatedLinear(_) = request.op else { return Err(wrong_op(request)) };
    let [gate, up] = [BoundWeight::from_input(request, 1)?, BoundWeight::from_input(request, 2)?];
    product::plan_gated(if gate.is_packed() { &PACKED } else { &KERNEL }, request, [&gate, &up])
}
