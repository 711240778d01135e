//! The record of a region.

use serde::{Deserialize, Serialize};

/// Nodes that ran as one model of the target, compared at the region's borders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionReport {
    /// Number of nodes.
    pub nodes: u64,
    /// Name of the first one.
    pub first: String,
    /// Name of the last one.
    pub last: String,
    /// Recorded runs whose values it was given.
    #[serde(default)]
    pub runs: u64,
    /// Whether all outputs are within what the allowed errors of the nodes explain.
    pub passed: bool,
    /// Largest error over what is explained. Infinity is written as the largest finite number.
    #[serde(serialize_with = "crate::report::finite")]
    pub ratio: f64,
    /// If it fails: the fewest nodes that fail together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// Why it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the target does not run these nodes as one model. It then says nothing of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// If it fails: the command that makes a standalone reproducer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<String>,
}
