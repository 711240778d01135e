//! `linear/subgroup`: planned with the other products by octets.

use super::super::Request;
use super::super::compose::{Joined, joined};
use super::super::product;
use super::super::source::{Kernel, wrong_op};
use super::super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined =
    joined!("product/product.wgsl", "product/plain.wgsl", "linear/subgroup.wgsl", "linear/outputs.wgsl");
const KERNEL: Kernel =
    Kernel { name: "linear/subgroup", file: TEXT.file, text: TEXT.text, math: false, ..product::KERNEL };

const PACKED_TEXT: Joined = joined!(
    "product/product.wgsl",
    "product/packed.wgsl",
    "linear/packed_subgroup.wgsl",
    "linear/outputs.wgsl"
);
const PACKED: Kernel =
    Kernel { name: "linear/packed_subgroup", file: PACKED_TEXT.file, text: PACKED_TEXT.text, ..KERNEL };

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Linear(_) = request.op else { return Err(wrong_op(request)) };
    let w = Weight::of(request, 1)?;
    product::linear(if w.is_packed() { &PACKED } else { &KERNEL }, request, &w)
}
