//! `linear/subgroup`: planned with the other products by octets.
//!
//! Lanes read 16 bytes of weights at a time, and sums meet by subgroup operations; see [`super::super::product`].

use super::super::Request;
use super::super::compose::{FixedComposition, joined};
use super::super::product;
use super::super::source::{KernelSource, wrong_op};
use super::super::weights::BoundWeight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// For plain weights.
const TEXT: FixedComposition =
    joined!("product/product.wgsl", "product/plain.wgsl", "linear/subgroup.wgsl", "linear/outputs.wgsl");
/// No gate, so no exponential.
const KERNEL: KernelSource = KernelSource {
    name: "linear/subgroup",
    file: TEXT.file,
    text: TEXT.text,
    math: false,
    ..product::KERNEL
};

/// For packed weights.
const PACKED_TEXT: FixedComposition = joined!(
    "product/product.wgsl",
    "product/packed.wgsl",
    "linear/packed_subgroup.wgsl",
    "linear/outputs.wgsl"
);
/// As [`KERNEL`] with the sections of a packed weight as bindings.
const PACKED: KernelSource =
    KernelSource { name: "linear/packed_subgroup", file: PACKED_TEXT.file, text: PACKED_TEXT.text, ..KERNEL };

/// The plan of `linear` by either of both.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Linear(_) = request.op else { return Err(wrong_op(request)) };
    let w = BoundWeight::from_input(request, 1)?;
    product::linear(if w.is_packed() { &PACKED } else { &KERNEL }, request, &w)
}
