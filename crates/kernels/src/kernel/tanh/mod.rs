//! `tanh`: launch planner.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use crate::plan::NodePlan;
use tapml_graph::Result;

/// The plan of `tanh`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    elementwise::plan(request, "tanh/portable", &formula())
}

/// The formula, which operators of others with this meaning use too.
pub fn formula() -> Formula {
    Formula::new(include_str!("formula.wgsl"))
}
