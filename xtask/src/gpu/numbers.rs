//! What a record keeps of a step's report: the numbers that say how much was checked, with which result, and how fast.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The numbers of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Numbers {
    DeviceCheck(DeviceCheck),
    Migrate(Migrate),
    Bugs(Bugs),
    Decode(Decode),
}

/// The device that a run is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDevice {
    pub platform: String,
    pub name: String,
    pub driver: String,
    /// `discrete`, `integrated`, `cpu` or `other`.
    pub kind: String,
    pub features: Features,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Features {
    pub f16: bool,
    pub subgroups: Option<(u32, u32)>,
    #[serde(default)]
    pub cuda: Option<u32>,
    #[serde(default)]
    pub matrices: bool,
}

impl RunDevice {
    /// Whether it is no processor in a GPU's place, whose speed says nothing.
    pub fn is_hardware(&self) -> bool {
        self.platform != "emulator" && self.kind != "cpu"
    }
}

/// The conformance suite, and the operators' samples if they were asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceCheck {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Operators and fused operators with samples.
    pub operators: u64,
    /// The samples by the row of the kernel list that ran them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelSamples>,
    /// The largest ratio of observed to allowed error among the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// Cases and samples that were skipped, counted by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped_because: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// The samples that one row of the kernel list ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelSamples {
    pub kernel: String,
    pub passed: u64,
    pub failed: u64,
    pub worst: f64,
}

/// Where the largest ratio is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    pub ratio: f64,
    /// The operator or the kernel.
    pub of: String,
}

/// A migration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Migrate {
    pub verdict: String,
    /// Operator kinds, fused ones included.
    pub operators: u64,
    pub accepted: u64,
    /// Calls that were run on the device, recorded and composed ones.
    pub cases: u64,
    pub failed: u64,
    /// Recorded calls, and those that were checked.
    pub calls: u64,
    pub checked: u64,
    /// Nodes that were not checked.
    pub skipped: u64,
    pub launches: Launches,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// Of the hybrid models: the largest divergence of the distributions, the least share of positions with the same first
    /// token, the largest ratio of logits, and whether all texts were equal.
    pub kl: Option<f64>,
    pub top1: Option<f64>,
    pub logits: Option<f64>,
    pub text_equal: Option<bool>,
    /// Kernels of the deployed program.
    pub deployed: Vec<Deployed>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Launches of one decode step and of one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    pub decode: LaunchCount,
    pub prefill: LaunchCount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchCount {
    pub of: u64,
    pub checked: u64,
}

/// A row of the kernel list in a deployed program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployed {
    pub phase: String,
    pub kernel: String,
    pub launches: u64,
    pub cases: u64,
    pub failed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
}

/// The bench of faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bugs {
    pub mutants: u64,
    /// Mutants that change something.
    pub faults: u64,
    /// Faults that nothing sees.
    pub missed: u64,
    /// Mutants that did not end, or by which the device was lost.
    pub lost: u64,
    pub clean: u64,
    pub false_alarms: u64,
    /// Faults of whole diagnoses, those without a report, and reports without a fault.
    pub diagnoses: u64,
    pub diagnosed_faults: u64,
    pub diagnoses_missed: u64,
    pub diagnoses_false: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// Speeds of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decode {
    /// Tokens a second.
    pub decode: Rate,
    pub prefill: Rate,
    pub tokens: u64,
    pub prompt_tokens: u64,
    pub prefill_tokens: u64,
    pub runs: u64,
    pub bytes_per_token: u64,
    /// Bytes a second.
    pub bandwidth: f64,
    pub share_of_floor: f64,
    pub peak_bytes: u64,
    pub load_seconds: f64,
}

/// The median of the runs, the slowest and the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Numbers {
    /// What went wrong, in words.
    pub fn failures(&self) -> &[String] {
        match self {
            Numbers::DeviceCheck(n) => &n.failures,
            Numbers::Migrate(n) => &n.failures,
            Numbers::Bugs(n) => &n.failures,
            Numbers::Decode(_) => &[],
        }
    }

    /// One line for who watches.
    pub fn summary(&self) -> String {
        let worst = |worst: &Option<Worst>| {
            worst.as_ref().map_or(String::new(), |w| format!(", worst {:.2}", w.ratio))
        };
        match self {
            Numbers::DeviceCheck(n) => {
                let kernels = match n.kernels.len() {
                    0 => String::new(),
                    count => format!("; {count} kernels"),
                };
                let worst = worst(&n.worst);
                format!("{} passed, {} failed, {} skipped{worst}{kernels}", n.passed, n.failed, n.skipped)
            }
            Numbers::Migrate(n) => format!(
                "{}; {} of {} calls checked, {} of {} cases failed{}; launches checked: {} of {} in decode, {} of {} in prefill",
                n.verdict,
                n.checked,
                n.calls,
                n.failed,
                n.cases,
                worst(&n.worst),
                n.launches.decode.checked,
                n.launches.decode.of,
                n.launches.prefill.checked,
                n.launches.prefill.of
            ),
            Numbers::Bugs(n) => format!(
                "{} mutants, {} faults, {} missed; {} clean runs, {} false alarms; {} diagnoses, {} missed, {} false",
                n.mutants,
                n.faults,
                n.missed,
                n.clean,
                n.false_alarms,
                n.diagnoses,
                n.diagnoses_missed,
                n.diagnoses_false
            ),
            Numbers::Decode(n) => format!(
                "decode {:.1} tokens/s ({:.1} to {:.1}), prefill {:.0} ({:.0} to {:.0})",
                n.decode.median, n.decode.min, n.decode.max, n.prefill.median, n.prefill.min, n.prefill.max
            ),
        }
    }
}
