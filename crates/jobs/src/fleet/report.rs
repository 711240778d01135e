//! What a fleet run found: one record per case and lane, and the matrix of operators by devices.
//!
//! The fields are a stable form (`SCHEMA`); records are also what a broker keeps.

use super::{FleetQueue, Records, Spread};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tapml_graph::Result;
use tapml_migrate::suite::Suite;

/// Version of the report's fields.
pub const SCHEMA: u32 = 1;

/// Most failures listed.
pub const MAX_FAILURES: usize = 100;

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

/// One operator on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Operator.
    pub op: String,
    /// Cases that were run.
    pub cases: u64,
    /// Cases that failed.
    pub failed: u64,
    /// Cases that the device has no kernel for.
    pub skipped: u64,
    /// The largest ratio of observed to allowed error.
    pub worst: f64,
}

/// One device of the matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Column {
    /// The device.
    #[serde(flatten)]
    pub member: Member,
    /// How often it was lost during the run.
    pub lost: u32,
    /// Items of work that it finished.
    #[serde(skip)]
    pub(super) done: u32,
    /// Why it was given up; absent if it stayed to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
    /// Defects that a checking device saw in kernels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<String>,
    /// By operator, in graph order.
    pub ops: Vec<Cell>,
}

/// The report of `tapml check --fleet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetReport {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The suite's folder.
    pub suite: String,
    /// How cases were spread: `share`, `class` or `every`.
    pub spread: String,
    /// Cases that were run.
    pub cases: u64,
    /// Cases that failed.
    pub failed: u64,
    /// Cases that a device has no kernel for.
    pub skipped: u64,
    /// Cases that no device was left for.
    pub missing: Vec<String>,
    /// The matrix.
    pub devices: Vec<Column>,
    /// The first failures, at most [`MAX_FAILURES`].
    pub failures: Vec<Record>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Whether it was stopped before every case was run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

impl FleetReport {
    /// Of a suite, without a record.
    pub(super) fn new(suite: &Suite, spread: Spread) -> FleetReport {
        let (suite, spread) = (suite.path().display().to_string(), spread.name().into());
        FleetReport { schema: SCHEMA, suite, spread, ..FleetReport::default() }
    }

    /// The records so far of a run that is stopped.
    pub fn for_stopped(
        suite: &Suite,
        spread: Spread,
        work: &dyn FleetQueue,
        after: Duration,
    ) -> Result<FleetReport> {
        let mut report = FleetReport::new(suite, spread);
        report.add(&work.records()?, suite);
        (report.seconds, report.stopped) = (after.as_secs_f64(), true);
        Ok(report)
    }

    /// Adds the records up, by device and operator in graph order.
    pub(super) fn add(&mut self, records: &Records, suite: &Suite) {
        for record in records.values() {
            let at = self.devices.iter().position(|column| column.member == record.member);
            let at = at.unwrap_or_else(|| {
                // Another process of the same run had this device.
                self.devices.push(Column { member: record.member.clone(), ..Column::default() });
                self.devices.len() - 1
            });
            let cells = &mut self.devices[at].ops;
            let cell = cells.iter().position(|cell| cell.op == record.op).unwrap_or_else(|| {
                cells.push(Cell { op: record.op.clone(), ..Cell::default() });
                cells.len() - 1
            });
            let cell = &mut cells[cell];
            match record.state {
                CaseState::Skipped => {
                    cell.skipped += 1;
                    self.skipped += 1;
                    continue;
                }
                CaseState::Failed => {
                    cell.failed += 1;
                    self.failed += 1;
                    if self.failures.len() < MAX_FAILURES {
                        self.failures.push(record.clone());
                    }
                }
                CaseState::Passed => {}
            }
            cell.cases += 1;
            cell.worst = cell.worst.max(record.ratio);
            self.cases += 1;
        }
        let ops = suite.graph().op_kinds();
        let place = |op: &str| ops.iter().position(|(known, _)| *known == op);
        self.devices.iter_mut().for_each(|column| column.ops.sort_by_key(|cell| place(&cell.op)));
    }

    /// Whether every case was run somewhere and passed.
    pub fn passes(&self) -> bool {
        !self.stopped
            && self.failed == 0
            && self.skipped == 0
            && self.missing.is_empty()
            && self.devices.iter().all(|d| d.defects.is_empty())
    }
}

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
