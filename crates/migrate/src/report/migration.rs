//! The record of a migration.

use super::check::{OpCheck, SkippedNode};
use super::regimes::RegimeCount;
use super::region::RegionReport;
use serde::{Deserialize, Serialize};
use tapml_exec::PlatformInfo;

/// The outcome of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The whole graph runs on the target.
    Accepted,
    /// An operator failed a check.
    Rejected,
    /// No operator failed, but some are not on the target.
    Incomplete,
}

/// One operator kind in a migration's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpReport {
    /// Operator name.
    pub op: String,
    /// Where it stands.
    pub state: crate::ledger::OpState,
    /// Nodes of this kind.
    pub nodes: u64,
    /// Name of the kernel; empty if there is none.
    pub kernel: String,
    /// The check of its calls alone; absent if there was none.
    pub check: Option<OpCheck>,
    /// The check of the hybrid model; absent if the operator did not get so far.
    pub model: Option<crate::model_check::ModelCheck>,
    /// Wall-clock time of both checks, when they were made.
    pub seconds: f64,
    /// Why it was not accepted.
    pub reason: Option<String>,
}

/// What was checked and what was not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Node calls of the suite.
    pub calls: u64,
    /// Node calls that were replayed on the target and judged.
    pub checked: u64,
    /// Nodes that were not.
    pub skipped: Vec<SkippedNode>,
    /// Launches of the deployed program that a checked row of the kernel list explains.
    #[serde(default)]
    pub launches: LaunchCoverage,
    /// Regimes of all kernels that were checked.
    #[serde(default)]
    pub regimes: RegimeCount,
}

/// Wall-clock times of this run, seconds. What was taken from the ledger took none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Reading the model; given by the caller.
    pub import: f64,
    /// Loading hybrid models, compilation included.
    pub compile: f64,
    /// Carving.
    pub carve: f64,
    /// Checking operators alone.
    pub check: f64,
    /// Checking hybrid models, measuring their limits included.
    pub model: f64,
    /// From the call to the report, plus `import`.
    pub total: f64,
}

/// What source and hybrid make of one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptText {
    /// The prompt.
    pub prompt: String,
    /// What the source generates greedily.
    pub source: String,
    /// What the hybrid puts first at each of these positions; absent if no operator is on the target.
    pub target: Option<String>,
}

/// The report of `tapml migrate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrateReport {
    /// See [`super::SCHEMA`].
    pub schema: u32,
    /// The model.
    pub model: crate::identity::ModelIdentity,
    /// The source platform.
    pub source: PlatformInfo,
    /// The target platform.
    pub target: PlatformInfo,
    /// The outcome.
    pub verdict: Outcome,
    /// The operators in graph order.
    pub ops: Vec<OpReport>,
    /// What was checked and what was not.
    pub coverage: Coverage,
    /// What the deployed program launches; empty if not the whole model runs on the target, or if the target launches
    /// nothing itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployed: Vec<Deployed>,
    /// Accepted nodes of others' operators that ran as one model of the target; empty if it runs nodes one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionReport>,
    /// Times.
    pub seconds: Seconds,
    /// Source and hybrid side by side.
    pub texts: Vec<PromptText>,
    /// Things to know that are no failure, such as a source that departs from the exact results.
    pub notes: Vec<String>,
}

/// The launches of one row of the kernel list in one run of the deployed program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployed {
    /// `decode` or `prefill`.
    pub phase: String,
    /// The row, such as `linear/gemv`.
    pub kernel: String,
    /// The operator that it implements.
    pub op: String,
    /// Launches in one run.
    pub launches: u64,
    /// Recorded calls that the row ran in its checks.
    pub cases: u64,
    /// Those that failed.
    pub failed: u64,
    /// The largest ratio; absent if no call was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
}

/// Launches of one run of the deployed program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchCount {
    /// All.
    pub of: u64,
    /// Those of rows whose checked calls all pass.
    pub checked: u64,
}

/// Launches of the deployed program by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchCoverage {
    /// Of a step of one row.
    pub decode: LaunchCount,
    /// Of a prompt.
    pub prefill: LaunchCount,
}
