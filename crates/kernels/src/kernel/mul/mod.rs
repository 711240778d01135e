//! `mul`: launch planner.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use crate::plan::NodePlan;
use tapml_graph::Result;

/// The plan of `mul`, whose second operand may be one row or one column.
pub fn plan(request: &Request) -> Result<NodePlan> {
    elementwise::plan_pairs(request, ["mul/portable", "mul/row"], &Formula::new(include_str!("formula.wgsl")))
}
