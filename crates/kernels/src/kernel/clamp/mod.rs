//! `clamp`: launch planner.
//!
//! Bounds are constants of the text, and flags tell which of them there are.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use super::source::wrong_op;
use crate::plan::NodePlan;
use tapml_graph::{Op, Result};

/// The plan of `clamp`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Clamp(op) = request.op else { return Err(wrong_op(request)) };
    // A missing bound has a value too, which the text does not look at.
    let bound = |bound: Option<f32>| (u32::from(bound.is_some()), bound.unwrap_or_default());
    let ((has_min, min), (has_max, max)) = (bound(op.min), bound(op.max));
    let formula = Formula::new(include_str!("formula.wgsl")).set("HAS_MIN", has_min).set("MIN", min);
    let formula = formula.set("HAS_MAX", has_max).set("MAX", max);
    elementwise::plan(request, "clamp/portable", &formula)
}
