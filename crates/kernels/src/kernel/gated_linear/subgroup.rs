//! `gated_linear/subgroup`: planned with the other products by octets.
//!
//! An octet is four columns of the gate and the same four of the other weight.

use super::super::Request;
use super::super::compose::{FixedComposition, joined};
use super::super::product;
use super::super::source::{KernelSource, wrong_op};
use super::super::weights::BoundWeight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// For plain weights.
const TEXT: FixedComposition = joined!(
    "product/product.wgsl",
    "product/plain.wgsl",
    "gated_linear/subgroup.wgsl",
    "gated_linear/outputs.wgsl"
);
/// A gate needs the bounded exponential of the `math` prelude.
const KERNEL: KernelSource = KernelSource {
    name: "gated_linear/subgroup",
    file: TEXT.file,
    text: TEXT.text,
    math: true,
    ..product::KERNEL
};

/// For packed weights.
const PACKED_TEXT: FixedComposition = joined!(
    "product/product.wgsl",
    "product/packed.wgsl",
    "gated_linear/packed_subgroup.wgsl",
    "gated_linear/outputs.wgsl"
);
/// As [`KERNEL`] with the sections of packed weights as bindings.
const PACKED: KernelSource = KernelSource {
    name: "gated_linear/packed_subgroup",
    file: PACKED_TEXT.file,
    text: PACKED_TEXT.text,
    ..KERNEL
};

/// The plan of `gated_linear` by either of both. Both weights are of one type, which the operator demands.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::GatedLinear(_) = request.op else { return Err(wrong_op(request)) };
    let [gate, up] = [BoundWeight::from_input(request, 1)?, BoundWeight::from_input(request, 2)?];
    product::plan_gated(if gate.is_packed() { &PACKED } else { &KERNEL }, request, [&gate, &up])
}
