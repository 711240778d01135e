//! `relu`: launch planner.

use super::Request;
use super::elementwise;
use super::formula::Formula;
use crate::plan::NodePlan;
use tapml_graph::Result;

/// The plan of `relu`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    elementwise::plan(request, "relu/portable", &formula())
}

/// The formula.
pub fn formula() -> Formula {
    Formula::new(include_str!("formula.wgsl"))
}
