//! Rewrites: rules that replace nodes by equal ones, each through a checked [`Patch`]. One file per rule, listed once
//! below. That a rule keeps the numbers is proven where operators can be evaluated.

mod apply;
mod drop_dead;
mod fuse_add_rms_norm;
mod fuse_expert_gated_linear;
mod fuse_gated_linear;
mod patch;
mod quantize;
mod run;
pub(crate) mod uses;

pub use patch::{Edit, Patch, Wire};
pub use quantize::quantize;
pub use run::{Applied, fuse, rewrite};

use crate::error::Result;
use crate::graph::Graph;

/// A named rewrite.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Name for reports, errors and [`rewrite`].
    pub name: &'static str,
    /// Adds an edit to the patch for every place of the graph where the rule holds; places do not overlap.
    pub apply: fn(&Graph, &mut Patch<'_>) -> Result<()>,
}

/// All rules, in the order in which [`fuse`] tries them.
pub const RULES: &[Rule] = &[
    // First, so that dead users do not keep other rules from a place.
    Rule { name: "drop_dead", apply: drop_dead::apply },
    Rule { name: "fuse_gated_linear", apply: fuse_gated_linear::apply },
    Rule { name: "fuse_expert_gated_linear", apply: fuse_expert_gated_linear::apply },
    Rule { name: "fuse_add_rms_norm", apply: fuse_add_rms_norm::apply },
];
