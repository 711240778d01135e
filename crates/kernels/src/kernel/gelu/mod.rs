//! `gelu`: launch planner.
//!
//! Three forms: by the error function, by the hyperbolic tangent, and by a sigmoid ("quick").

use super::Request;
use super::elementwise;
use super::formula::Formula;
use super::source::wrong_op;
use crate::plan::NodePlan;
use tapml_graph::op::GeluForm;
use tapml_graph::{Op, Result};

/// The plan of `gelu`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Gelu(op) = request.op else { return Err(wrong_op(request)) };
    elementwise::plan(request, "gelu/portable", &formula(op.approximate))
}

/// The formula of a form, which operators of others with this meaning use too.
pub fn formula(form: GeluForm) -> Formula {
    let code = match form {
        GeluForm::None => 0u32,
        GeluForm::Tanh => 1,
        GeluForm::Quick => 2,
    };
    Formula::new(concat!(include_str!("formula.wgsl"), include_str!("tail.wgsl"))).set("FORM", code)
}
