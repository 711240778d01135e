//! `quantized_expert_linear`: `expert_linear` with weights that are unpacked as they are read; planned as there.

use super::Request;
use super::expert_linear;
use super::source::{Kernel, wrong_op};
use super::weights::{Weight, one_quantized};
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const KERNEL: Kernel = Kernel {
    name: "quantized_expert_linear/portable",
    file: "expert_linear/portable.wgsl+quantized_expert_linear/bindings.wgsl+weights/one_quantized.wgsl",
    text: concat!(
        include_str!("../expert_linear/portable.wgsl"),
        "\n",
        include_str!("bindings.wgsl"),
        "\n",
        one_quantized!()
    ),
    ..expert_linear::KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::QuantizedExpertLinear(op) = request.op else { return Err(wrong_op(request)) };
    expert_linear::plan_with(&KERNEL, request, &Weight::packed(request, 1, op.packing())?)
}
