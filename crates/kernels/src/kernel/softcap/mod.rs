//! `softcap`: launch planner.
//!
//! Its formula keeps numbers within a cap by the hyperbolic tangent.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use super::source::wrong_op;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// The plan of `softcap`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Softcap(op) = request.op else { return Err(wrong_op(request)) };
    let formula = Formula::new(include_str!("formula.wgsl")).set("CAP", op.cap);
    elementwise::plan(request, "softcap/portable", &formula)
}
