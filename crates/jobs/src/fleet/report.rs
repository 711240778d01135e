//! What a fleet run found: the matrix of operators by devices.
//!
//! The fields are a stable form (`SCHEMA`); records are also what a broker keeps.

use super::queue::FleetQueue;
use super::record::{CaseState, Member, Record, Records};
use super::setup::Spread;
use serde::Serialize;
use std::time::Duration;
use tapml_graph::Result;
use tapml_migrate::suite::Suite;

/// Version of the report's fields.
pub const SCHEMA: u32 = 1;

/// Most failures listed.
pub const MAX_FAILURES: usize = 100;

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
