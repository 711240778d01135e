//! `linear/subgroup`: planned with the other products by octets.

use super::super::Request;
use super::super::product::{self, plain_product};
use super::super::source::{Kernel, wrong_op};
use super::super::weights::Weight;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

const KERNEL: Kernel = Kernel {
    name: "linear/subgroup",
    file: "product/product.wgsl+product/plain.wgsl+linear/subgroup.wgsl+linear/outputs.wgsl",
    text: plain_product!("../linear/subgroup.wgsl", "../linear/outputs.wgsl"),
    math: false,
    ..product::KERNEL
};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Linear(_) = request.op else { return Err(wrong_op(request)) };
    product::linear(&KERNEL, request, &Weight::plain(request, 1))
}
