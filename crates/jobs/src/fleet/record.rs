//! What became of a case on a device of a fleet.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tapml_graph::Result;

/// A device of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The word to ask for, such as `hub/lab3/vulkan:1`.
    pub target: String,
    /// Its platform's word.
    pub platform: String,
    /// The device's own name.
    pub device: String,
    /// Driver name and version.
    pub driver: String,
    /// Who serves it: a browser with its version, or a build of TapML.
    pub agent: String,
}

impl Member {
    /// What devices of the same kind have in common.
    pub fn class(&self) -> String {
        format!("{} · {} · {} · {}", self.platform, self.device, self.driver, self.agent)
    }
}

/// How a case ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseState {
    /// Within the allowed error.
    #[default]
    Passed,
    /// Wrong, or it could not be run.
    Failed,
    /// The device has no kernel for it.
    Skipped,
}

/// What became of a case on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Every case has one record per lane.
    pub lane: String,
    /// The case.
    pub case: String,
    /// Its operator.
    pub op: String,
    /// The device.
    pub member: Member,
    /// How it ended.
    pub state: CaseState,
    /// Observed error over allowed error; the largest number if it could not be run.
    pub ratio: f64,
    /// Hash of the kernel that ran it, or version of the operator; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// Why it failed or was skipped; empty if it passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Records by lane and case.
pub type Records = BTreeMap<(String, String), Record>;

// A lost device costs the cases of one item.

/// A ratio that JSON can hold.
///
/// NaN becomes the largest number, so that it sorts as the worst.
pub fn finite(ratio: f64) -> f64 {
    if ratio.is_nan() { f64::MAX } else { ratio.clamp(f64::MIN, f64::MAX) }
}

/// A record as bytes, for a queue of many.
pub fn encode(record: &Record) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(|e| tapml_graph::Error::bug(format!("a record: {e}")))
}
