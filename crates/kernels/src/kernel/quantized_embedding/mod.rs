//! `quantized_embedding`: `embedding` of a table that is unpacked as it is read; planned as there.

use super::Request;
use super::embedding;
use super::source::{Kernel, wrong_op};
use super::weights::{Weight, one_quantized};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const KERNEL: Kernel = Kernel {
    weights: true,
    ..Kernel::flat(
        "quantized_embedding/portable",
        "embedding/portable.wgsl+quantized_embedding/bindings.wgsl+weights/one_quantized.wgsl",
        concat!(
            include_str!("../embedding/portable.wgsl"),
            "\n",
            include_str!("bindings.wgsl"),
            "\n",
            one_quantized!()
        ),
    )
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedEmbedding(op) = request.op else { return Err(wrong_op(request)) };
    embedding::plan_with(&KERNEL, request, &Weight::packed(request, 1, op.packing())?)
}
