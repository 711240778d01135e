//! What a check has found so far, for a report if it is stopped.
//!
//! A check that is stopped returns an error and no report. What it told of each call is enough to make one.

use crate::check::Checked;
use crate::judged::{CaseResult, JudgedCall};
use crate::ledger::Entry;
use crate::progress::Progress;
use crate::report::{CheckReport, OpCheck, SCHEMA};
use crate::suite::Suite;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tapml_exec::PlatformInfo;

/// Passes progress on, and keeps every verdict.
pub struct SoFar<P> {
    inner: P,
    /// When the check began, about.
    start: Instant,
    target: PlatformInfo,
    state: Mutex<CheckState>,
}

/// What has been told.
#[derive(Default)]
struct CheckState {
    /// In the order of their first calls.
    ops: Vec<OpCheck>,
    /// By the names of the cases, in the order in which they were judged.
    results: Vec<(String, CaseResult)>,
}

impl<P: Progress> SoFar<P> {
    /// Nothing has been found on this platform yet.
    pub fn new(inner: P, target: PlatformInfo) -> SoFar<P> {
        SoFar { inner, start: Instant::now(), target, state: Mutex::default() }
    }

    /// What is told of progress.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The verdicts so far, as a check that was stopped. What only whole operators have is missing: probes, made calls,
    /// findings.
    pub fn stop_check(&self, suite: &Suite) -> Checked {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for op in &mut state.ops {
            // The kernel's name is told with each call only.
            op.kernel = op.kernels.iter().map(|k| k.kernel.as_str()).collect::<Vec<_>>().join("+");
        }
        let report = CheckReport {
            schema: SCHEMA,
            suite: suite.path().display().to_string(),
            target: self.target.clone(),
            cases: state.ops.iter().map(|op| op.cases).sum(),
            failed: state.ops.iter().map(|op| op.failed).sum(),
            skipped: Vec::new(),
            ops: state.ops.clone(),
            seconds: self.start.elapsed().as_secs_f64(),
            stopped: true,
        };
        // The calls of fused operators have no place in the suite's own graph.
        let of_suite = |(id, result): &(String, CaseResult)| {
            suite.find_case(id).ok().map(|case| CaseResult { case, outcome: result.outcome.clone() })
        };
        Checked { report, results: state.results.iter().filter_map(of_suite).collect() }
    }
}

impl<P: Progress> Progress for SoFar<P> {
    fn stage(&self, name: &str, total: u64) {
        self.inner.stage(name, total);
    }

    fn advance(&self, units: u64) {
        self.inner.advance(units);
    }

    fn note(&self, text: &str) {
        self.inner.note(text);
    }

    fn on_judged(&self, call: &JudgedCall<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = state.ops.iter().position(|op| op.op == call.op).unwrap_or(state.ops.len());
        if at == state.ops.len() {
            state.ops.push(OpCheck { op: call.op.into(), ..OpCheck::default() });
        }
        state.ops[at].add(call);
        state.results.push((call.case.clone(), call.result.clone()));
    }

    fn on_decided(&self, entry: &Entry) {
        self.inner.on_decided(entry);
    }
}
