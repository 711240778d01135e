//! `gelu`: launch planner.

use super::Request;
use super::elementwise::{self, Formula};
use super::source::wrong_op;
use crate::plan::NodePlan;
use tapml_graph::op::GeluForm;
use tapml_graph::{Op, Result};

pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Gelu(op) = request.op else { return Err(wrong_op(request)) };
    elementwise::plan(request, "gelu/portable", &formula(op.approximate))
}

pub fn formula(form: GeluForm) -> Formula {
    let code = match form {
        GeluForm::None => 0u32,
        GeluForm::Tanh => 1,
        GeluForm::Quick => 2,
    };
    Formula::new(concat!(include_str!("formula.wgsl"), include_str!("tail.wgsl"))).set("FORM", code)
}
