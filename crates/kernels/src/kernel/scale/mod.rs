//! `scale`: launch planner.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use super::source::wrong_op;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// The plan of `scale`; the factor is a constant of the text.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Scale(op) = request.op else { return Err(wrong_op(request)) };
    let formula = Formula::new(include_str!("formula.wgsl")).set("FACTOR", op.factor);
    elementwise::plan(request, "scale/portable", &formula)
}
