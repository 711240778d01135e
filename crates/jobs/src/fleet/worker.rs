//! One device of a fleet: takes items, runs them, gives them back when the device is lost, and waits for it to return.
//!
//! A shift lasts as long as one connection. Between shifts the worker waits and tries again; time without a
//! finished item counts against `wait_timeout`.

use super::board::Board;
use super::device::{is_loss, open};
use super::identity::Kernels;
use super::queue::{Item, Task};
use super::record::{CaseState, Member, Record, finite};
use super::report::Column;
use super::setup::Fleet;
use crate::platform::Platform;
use std::time::{Duration, Instant};
use tapml_graph::Result;
use tapml_migrate::report::is_defect;
use tapml_migrate::{CaseResult, CheckOptions, Checked, Quiet, check};

// A case that takes three devices down is a result: it fails.
/// How often a case may lose its device before the case is what is wrong.
const LOSSES: u32 = 3;

/// How long to wait when the queue has nothing now.
const IDLE: Duration = Duration::from_millis(50);

/// How long to wait before a lost device is opened again.
const AGAIN: Duration = Duration::from_millis(300);

/// Most defects told of one device.
const DEFECTS: usize = 20;

// A third of the time after which the queue forgets a silent task.
/// How often a task is said to be worked on.
const RENEW: Duration = Duration::from_secs(4);

/// See the module.
pub(super) struct Worker<'a> {
    fleet: &'a Fleet<'a>,
    board: &'a Board<'a>,
    lane: String,
    column: Column,
    kernels: Kernels<'a>,
}

impl<'a> Worker<'a> {
    /// A worker for this device.
    pub fn new(fleet: &'a Fleet<'a>, board: &'a Board<'a>, member: Member) -> Worker<'a> {
        let lane = fleet.spread.lane(&member);
        let column = Column { member, ..Column::default() };
        Worker { fleet, board, lane, column, kernels: Kernels::new(fleet.suite) }
    }

    /// Works until its lane is done, the user stops it, or the device is given up.
    pub fn work(mut self) -> Column {
        let mut since = Instant::now();
        loop {
            // A shift that finished something starts the time anew.
            let done = self.column.done;
            let Err(error) = self.shift() else { break };
            if self.column.done > done {
                since = Instant::now();
            }
            if !is_loss(&error) || since.elapsed() > self.fleet.wait_timeout {
                self.column.given_up = Some(error.to_string());
                break;
            }
            log::info!("{}: {error}", self.column.member.target);
            std::thread::sleep(AGAIN);
        }
        self.column
    }

    /// Works as long as the device stays. Fails as one that is lost when it goes or cannot be opened.
    fn shift(&mut self) -> Result<()> {
        if self.is_over()? {
            return Ok(());
        }
        let mut device = open(self.fleet, &self.column.member)?;
        // Another agent may serve the device by now.
        self.kernels = Kernels::new(self.fleet.suite);
        while !self.is_over()? {
            let Some(task) = self.board.work.take(&self.lane)? else {
                std::thread::sleep(IDLE);
                if !self.board.work.busy(&self.lane)? {
                    // Whoever had the rest is gone, and the queue has forgotten it.
                    self.board.put(self.fleet)?;
                }
                continue;
            };
            self.run_task(device.as_mut(), task)?;
            self.column.done += 1;
        }
        Ok(())
    }

    /// Whether the lane is done; fails if the user has stopped.
    fn is_over(&self) -> Result<bool> {
        self.fleet.stop.check()?;
        self.board.done(&self.lane, self.fleet.progress)
    }

    /// Runs one task. What a lost device has not finished is given back.
    fn run_task(&mut self, device: &mut dyn Platform, task: Task) -> Result<()> {
        let cases = task.item.cases.clone();
        if cases.len() == 1 && task.lost >= LOSSES {
            let text = format!("{} devices were lost while they ran it", task.lost);
            let records = vec![self.record(device, &cases[0], CaseState::Failed, f64::INFINITY, text)?];
            return self.board.work.finish(task, records);
        }
        match self.check_cases(device, &task, cases) {
            Ok(checked) => {
                let findings = checked.report.ops.iter().flat_map(|op| &op.findings).filter(|f| is_defect(f));
                for finding in findings.map(ToString::to_string) {
                    if self.column.defects.len() < DEFECTS && !self.column.defects.contains(&finding) {
                        self.column.defects.push(finding);
                    }
                }
                let records = self.records(device, &checked)?;
                self.keep(&task, &records)
            }
            Err(error) => {
                if is_loss(&error) {
                    self.column.lost += 1;
                }
                // One of the cases may be what loses devices: it shall be alone the next time.
                // Single cases: the next loss names its case.
                let pieces = task.item.cases.iter();
                let piece = |case: &String| Item { lane: self.lane.clone(), cases: vec![case.clone()] };
                let pieces = pieces.map(piece).collect();
                self.board.work.give_back(task, pieces)?;
                Err(error)
            }
        }
    }

    /// Keeps what came out. A queue that is away is waited for: its work would be done again otherwise.
    fn keep(&self, task: &Task, records: &[Record]) -> Result<()> {
        let since = Instant::now();
        loop {
            match self.board.work.finish(task.clone(), records.to_vec()) {
                Err(error) if is_loss(&error) && since.elapsed() < self.fleet.wait_timeout => {
                    self.fleet.stop.check()?;
                    log::info!("the queue: {error}");
                    std::thread::sleep(AGAIN);
                }
                kept => return kept,
            }
        }
    }

    /// Checks the cases, and says meanwhile that they are being worked on.
    fn check_cases(&self, device: &mut dyn Platform, task: &Task, cases: Vec<String>) -> Result<Checked> {
        let f = self.fleet;
        let options = CheckOptions { ops: Vec::new(), cases };
        let (tell, told) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while told.recv_timeout(RENEW) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    if let Err(error) = self.board.work.renew(task) {
                        log::warn!("the queue: {error}");
                    }
                }
            });
            let checked = check(f.suite, f.model, device, f.oracles, &options, &Quiet, f.stop);
            drop(tell);
            checked
        })
    }

    /// Passed and failed cases, then those without a kernel.
    fn records(&mut self, device: &dyn Platform, checked: &Checked) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for result in &checked.results {
            records.push(self.record_result(device, result)?);
        }
        for skipped in &checked.report.skipped {
            let reason = skipped.reason.clone();
            records.push(self.record(device, &skipped.case, CaseState::Skipped, 0.0, reason)?);
        }
        Ok(records)
    }

    /// The reason of a failure is the criterion that it missed, or the error.
    fn record_result(&mut self, device: &dyn Platform, result: &CaseResult) -> Result<Record> {
        let (case, ratio) = (self.fleet.suite.case_id(result.case), result.ratio());
        let (state, reason) = match (&result.outcome, result.is_failed()) {
            (Err(error), _) => (CaseState::Failed, error.to_string()),
            (Ok(judgement), true) => (CaseState::Failed, judgement.criterion.name().into()),
            (Ok(_), false) => (CaseState::Passed, String::new()),
        };
        self.record(device, &case, state, ratio, reason)
    }

    /// One record of this lane and device.
    fn record(
        &mut self,
        device: &dyn Platform,
        case: &str,
        state: CaseState,
        ratio: f64,
        reason: String,
    ) -> Result<Record> {
        let suite = self.fleet.suite;
        let place = suite.find_case(case)?;
        Ok(Record {
            lane: self.lane.clone(),
            case: case.into(),
            op: suite.graph().node(place.node).op.name().into(),
            member: self.column.member.clone(),
            state,
            ratio: finite(ratio),
            kernel: self.kernels.hash(device, place),
            reason,
        })
    }
}
