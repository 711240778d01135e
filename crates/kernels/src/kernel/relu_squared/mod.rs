//! `relu_squared`: launch planner.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use crate::plan::NodePlan;
use tapml_graph::Result;

/// The plan of `relu_squared`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    elementwise::plan(request, "relu_squared/portable", &formula())
}

/// The formula.
pub fn formula() -> Formula {
    Formula::new(include_str!("formula.wgsl"))
}
