//! `add`: launch planner.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use crate::plan::NodePlan;
use tapml_graph::Result;

/// The plan of `add`, whose second operand may be one row or one column.
pub fn plan(request: &Request) -> Result<NodePlan> {
    elementwise::plan_pairs(request, ["add/portable", "add/row"], &Formula::new(include_str!("formula.wgsl")))
}
