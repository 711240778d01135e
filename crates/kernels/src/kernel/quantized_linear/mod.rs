//! `quantized_linear`: `linear` with a weight that is unpacked as it is read; planned as there.

pub mod subgroup;

use super::Request;
use super::compose::{Joined, joined};
use super::linear;
use super::source::{Kernel, wrong_op};
use super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined = joined!(
    "linear/portable.wgsl",
    "linear/reads.wgsl",
    "quantized_linear/bindings.wgsl",
    "weights/one_quantized.wgsl"
);
const KERNEL: Kernel =
    Kernel { name: "quantized_linear/portable", file: TEXT.file, text: TEXT.text, ..linear::KERNEL };

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedLinear(op) = request.op else { return Err(wrong_op(request)) };
    linear::plan_with(&KERNEL, request, &Weight::packed(request, 1, op.packing())?)
}
