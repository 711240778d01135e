//! `quantized_embedding`: `embedding` of a table that is unpacked as it is read; planned as there.

use super::Request;
use super::compose::{Joined, joined};
use super::embedding;
use super::source::{Kernel, wrong_op};
use super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const TEXT: Joined =
    joined!("embedding/portable.wgsl", "quantized_embedding/bindings.wgsl", "weights/one_quantized.wgsl");
const KERNEL: Kernel =
    Kernel { weights: true, ..Kernel::flat("quantized_embedding/portable", TEXT.file, TEXT.text) };

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedEmbedding(op) = request.op else { return Err(wrong_op(request)) };
    embedding::plan_with(&KERNEL, request, &Weight::packed(request, 1, op.packing())?)
}
