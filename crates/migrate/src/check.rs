//! Checking: replays carved node calls on a platform and judges each, in the thread pool, while the platform works on.
//!
//! Three limits bound the memory: a batch's bytes and calls, and the results that wait for a verdict. The
//! platform is used by one thread only. Verdicts come in any order; results are sorted afterwards, so that
//! reports do not depend on it.

use crate::choices::KernelChoices;
use crate::filter::{Filter, looked_at};
use crate::judged::{CaseResult, JudgedCall, judge_call};
use crate::made::{CallMaker, MadeFailure};
use crate::oracle::Oracles;
use crate::progress::Progress;
use crate::range_test;
use crate::report::{BUCKETS, CheckReport, MAX_FAILURES, OpCheck, SCHEMA, SkippedCase, SkippedNode};
use crate::slots::Slots;
use crate::stop::Stop;
use crate::suite::{Case, Suite};
use crate::verdict::Judgement;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tapml_exec::{Call, Phase, Platform};
use tapml_graph::{Error, ErrorKind, Model, Result, Tensor};

/// Input bytes, weights not counted, of the calls that are handed to a platform at once.
const BATCH_BYTES: usize = 16 << 20;
/// Most calls of a batch.
const BATCH_CALLS: usize = 256;
/// Results that may wait for their verdict.
const QUEUE: usize = 64;

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Names of operators; all if empty.
    pub ops: Vec<String>,
    /// Names of cases; all if empty.
    pub cases: Vec<String>,
}

/// A report and every single verdict behind it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The report.
    pub report: CheckReport,
    /// All cases that were run, by operator, in suite order.
    pub results: Vec<CaseResult>,
}

/// Checks operators of a suite, one after the other, on a platform. Shared by `tapml check` and `tapml migrate`.
pub struct Checker<'a> {
    suite: &'a Suite,
    model: &'a Model,
    oracles: &'a Oracles,
    progress: &'a dyn Progress,
    stop: &'a Stop,
}

/// What checking one operator gave.
#[derive(Clone, Debug)]
pub struct OpChecked {
    /// The summary.
    pub check: OpCheck,
    /// Every verdict.
    pub results: Vec<CaseResult>,
    /// What was not run.
    pub skipped: Vec<(Case, String)>,
    /// Made calls that fail.
    pub made: Vec<MadeFailure>,
}

/// Replays the suite's calls on `platform`. `model` is what [`Suite::model`] gave.
pub fn check(
    suite: &Suite,
    model: &Model,
    platform: &mut dyn Platform,
    oracles: &Oracles,
    options: &CheckOptions,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Checked> {
    let start = Instant::now();
    let composed = composed_suites(suite, platform)?;
    let budget = oracles.budget();
    // Cases of different graphs have the same numbers, so each view has oracles of its own.
    let own = composed.each_ref().map(|_| oracles.for_view(budget));
    let mut views = vec![(suite, oracles)];
    views.extend(composed.iter().zip(&own));
    let parts = select_parts(&views, options)?;
    let nodes = parts.iter().flat_map(|part| part.cases.iter().map(|case| (views[part.view].0, *case)));
    let nodes: Vec<_> = nodes.map(|(of, case)| (of.graph(), case.node, of.phase(case))).collect();
    platform.prepare(&nodes);
    progress.stage("check", parts.iter().map(|part| part.cases.len() as u64).sum());
    let mut report = CheckReport {
        schema: SCHEMA,
        suite: suite.path().display().to_string(),
        target: platform.describe(),
        cases: 0,
        failed: 0,
        skipped: Vec::new(),
        ops: Vec::new(),
        seconds: 0.0,
        stopped: false,
    };
    let mut results = Vec::new();
    for OperatorPart { view, op, cases } in parts {
        let (suite, oracles) = views[view];
        let checker = Checker::new(suite, model, oracles, progress, stop);
        let done = checker.cases(platform, op, cases)?;
        report.cases += done.check.cases;
        report.failed += done.check.failed;
        let skipped = done.skipped.into_iter();
        report.skipped.extend(skipped.map(|(c, reason)| SkippedCase { case: suite.case_id(c), reason }));
        match report.ops.iter_mut().find(|known| known.op == op) {
            // Both phases have it.
            Some(known) => *known = std::mem::take(known).and(done.check),
            None => report.ops.push(done.check),
        }
        // The calls of fused operators have no place in the suite's own graph.
        results.extend(done.results.into_iter().filter(|_| view == 0));
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok(Checked { report, results })
}

/// The suite's values as calls of the fused operators that a platform runs in decode and in prefill; see
/// [`Suite::compose_phase`].
pub fn composed_suites(suite: &Suite, platform: &dyn Platform) -> Result<[Suite; 2]> {
    let of = |phase| {
        let lowered = platform.lower(suite.graph(), phase)?;
        suite.compose_phase(lowered.unwrap_or_else(|| suite.graph().clone()), phase)
    };
    let [decode, prefill] = Phase::ALL;
    Ok([of(decode)?, of(prefill)?])
}

/// The calls of one operator in one view of the suite.
struct OperatorPart {
    /// 0 for the suite itself, 1 and 2 for its fused operators in decode and in prefill.
    view: usize,
    op: &'static str,
    cases: Vec<Case>,
}

/// What is to be checked, operators in graph order. Fails on an operator that no view has, and on a call that there is not.
fn select_parts(views: &[(&Suite, &Oracles)], options: &CheckOptions) -> Result<Vec<OperatorPart>> {
    let mut found: HashMap<&str, (usize, Case)> = HashMap::new();
    for id in &options.cases {
        let place =
            views.iter().enumerate().find_map(|(at, (suite, _))| Some((at, suite.find_case(id).ok()?)));
        // Not found anywhere: the suite itself says so.
        let place = place.map_or_else(|| views[0].0.find_case(id).map(|case| (0, case)), Ok)?;
        found.insert(id, place);
    }
    let (mut parts, mut kinds) = (Vec::new(), Vec::new());
    for (view, (suite, _)) in views.iter().enumerate() {
        for (op, _) in suite.graph().op_kinds() {
            let own = |case: &Case| suite.graph().node(case.node).op.name() == op;
            let cases: Vec<Case> = suite.cases().filter(own).collect();
            if !cases.is_empty() || view == 0 {
                kinds.push(op);
            }
            let wanted = |case: &Case| found.is_empty() || found.values().any(|of| *of == (view, *case));
            let cases: Vec<Case> = cases.into_iter().filter(wanted).collect();
            if !cases.is_empty() && (options.ops.is_empty() || options.ops.iter().any(|name| name == op)) {
                parts.push(OperatorPart { view, op, cases });
            }
        }
    }
    match options.ops.iter().find(|name| !kinds.contains(&name.as_str())) {
        Some(unknown) => Err(Error::invalid(format!("the model has no operator `{unknown}`"))
            .with_hint(format!("it has: {}", kinds.join(", ")))),
        None => Ok(parts),
    }
}

impl<'a> Checker<'a> {
    /// A checker of this suite.
    pub fn new(
        suite: &'a Suite,
        model: &'a Model,
        oracles: &'a Oracles,
        progress: &'a dyn Progress,
        stop: &'a Stop,
    ) -> Checker<'a> {
        Checker { suite, model, oracles, progress, stop }
    }

    /// Checks every call of one operator kind.
    pub fn op(&self, platform: &mut dyn Platform, op: &str) -> Result<OpChecked> {
        let cases = self.cases_of(op, &HashSet::new());
        self.cases(platform, op, cases)
    }

    /// Calls of an operator; all if none is named.
    fn cases_of(&self, op: &str, wanted: &HashSet<Case>) -> Vec<Case> {
        let of_op = self.suite.cases().filter(|c| self.suite.graph().node(c.node).op.name() == op);
        of_op.filter(|c| wanted.is_empty() || wanted.contains(c)).collect()
    }

    /// Checks these calls. Only if they are all of the operator, probes and made calls follow.
    fn cases(&self, platform: &mut dyn Platform, op: &str, cases: Vec<Case>) -> Result<OpChecked> {
        let start = Instant::now();
        let choices = KernelChoices::of_cases(self.suite, platform, &cases)?;
        let all = cases.len() as u64;
        let (cases, mut skipped) = choices.split(self.suite, cases);
        self.progress.advance(all - cases.len() as u64);
        // Drops those of whoever used the platform before.
        platform.take_findings();
        let mut results = self.run(platform, &cases, &choices, &mut skipped)?;
        results.sort_by_key(|r| (r.case.frame, r.case.node));
        let mut check = self.summary(op, &results, &choices);
        check.findings = platform.take_findings();
        let mut made = Vec::new();
        // Sizes of others' operators are constant, and nobody knows what rows they bear.
        let own = cases.iter().all(|case| !self.suite.graph().node(case.node).op.is_foreign());
        if own && self.cases_of(op, &HashSet::new()).len() as u64 == all {
            (check.probes, check.overflows) =
                range_test::run(self.suite, self.model, self.oracles, platform, &cases, &choices)?;
            made = self.check_made(platform, &cases, &choices, &mut check)?;
        }
        check.skipped = skipped_nodes(self.suite, &skipped);
        if results.is_empty() {
            check.unsupported = skipped.first().map(|(_, reason)| reason.clone());
        }
        check.seconds = start.elapsed().as_secs_f64();
        Ok(OpChecked { check, results, skipped, made })
    }

    /// Runs what recorded calls do not reach; gives the calls that fail.
    fn check_made(
        &self,
        platform: &mut dyn Platform,
        cases: &[Case],
        choices: &KernelChoices,
        check: &mut OpCheck,
    ) -> Result<Vec<MadeFailure>> {
        let (suite, model, oracles, stop) = (self.suite, self.model, self.oracles, self.stop);
        let made = CallMaker { suite, model, oracles, choices, stop }.run(platform, cases)?;
        check.findings.extend(platform.take_findings());
        check.made = made.calls;
        check.made_failures = made.failures.iter().take(MAX_FAILURES).map(MadeFailure::failure).collect();
        check.regimes = made.regimes;
        Ok(made.failures)
    }

    /// Replays the cases in batches on this thread; verdicts run in the thread pool meanwhile.
    fn run(
        &self,
        platform: &mut dyn Platform,
        cases: &[Case],
        choices: &KernelChoices,
        skipped: &mut Vec<(Case, String)>,
    ) -> Result<Vec<CaseResult>> {
        let slots = Slots::new(QUEUE);
        let looked: HashMap<Case, usize> =
            looked_at(cases.len()).into_iter().map(|i| (cases[i], i)).collect();
        let filter = Filter::default();
        let (looked_of, filter_of) = (&looked, &filter);
        let useless = AtomicBool::new(false);
        let results = Mutex::new(Vec::with_capacity(cases.len()));
        let (results_of, useless_of) = (&results, &useless);
        rayon::in_place_scope(|scope| {
            let mut submit = |job: Job| {
                let slot = slots.take();
                scope.spawn(move |_| {
                    let _slot = slot;
                    // After an error nobody needs the verdicts that still wait.
                    if useless_of.load(Ordering::Relaxed) {
                        return;
                    }
                    let case = job.case;
                    let index = looked_of.get(&case).copied();
                    let outcome = self.judge(job, choices, index.map(|i| (i, filter_of)));
                    let result = CaseResult { case, outcome };
                    if !result.is_unjudged() {
                        self.progress.on_judged(&self.judged_call(&result, choices));
                    }
                    let mut results = results_of.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push(result);
                    drop(results);
                    self.progress.advance(1);
                });
            };
            let done = self.replay(platform, cases, &mut submit, skipped);
            useless.store(done.is_err(), Ordering::Relaxed);
            done
        })?;
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (unjudged, mut results): (Vec<_>, Vec<_>) =
            results.into_iter().partition(CaseResult::is_unjudged);
        let reason = |result: CaseResult| Some((result.case, result.outcome.err()?.to_string()));
        skipped.extend(unjudged.into_iter().filter_map(reason));
        // A call that fails by its elements tells more than what many calls show together.
        if !results.iter().any(CaseResult::is_failed) {
            accuse(&mut results, cases, &filter);
        }
        Ok(results)
    }

    /// Batch after batch; a call that the platform cannot run is skipped, and one that fails is a result.
    fn replay(
        &self,
        platform: &mut dyn Platform,
        cases: &[Case],
        submit: &mut dyn FnMut(Job),
        skipped: &mut Vec<(Case, String)>,
    ) -> Result<()> {
        // All calls of a node one after the other: they share its weights.
        let mut cases = cases.to_vec();
        cases.sort_by_key(|case| (case.node, case.frame));
        let mut at = 0;
        while at < cases.len() {
            self.stop.check()?;
            let (calls, expected) = self.batch(&cases[at..])?;
            let batch = &cases[at..at + calls.len()];
            let calls = Arc::new(calls);
            // The platform may answer in any order, but must answer each call.
            let mut seen = vec![false; batch.len()];
            let mut fatal = None;
            platform.replay(&calls, &mut |i, outputs| {
                let Some(&case) = batch.get(i) else { return };
                seen[i] = true;
                match outputs {
                    // Says nothing about the kernel: no call can be run any more.
                    Err(e) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => {
                        fatal = Some(e)
                    }
                    Err(e) if e.kind() == ErrorKind::Unsupported => {
                        skipped.push((case, e.to_string()));
                        self.progress.advance(1);
                    }
                    outputs => {
                        let expected = expected[i].clone();
                        submit(Job { case, calls: calls.clone(), at: i, expected, outputs });
                    }
                }
            })?;
            if let Some(error) = fatal {
                return Err(error);
            }
            if let Some(i) = seen.iter().position(|s| !s) {
                return Err(Error::bug(format!(
                    "the platform gave no result for {}",
                    self.suite.case_id(batch[i])
                )));
            }
            at += batch.len();
        }
        Ok(())
    }

    /// The next calls with their recorded outputs: as many as fit a batch, at least one.
    fn batch(&self, cases: &[Case]) -> Result<(Vec<Call>, Vec<Vec<Tensor>>)> {
        let (mut calls, mut expected, mut bytes) = (Vec::new(), Vec::new(), 0);
        for &case in cases.iter().take(BATCH_CALLS) {
            let (call, outputs) = self.suite.call(case, self.model)?;
            let own = call.inputs.iter().zip(&call.weights).filter(|(_, w)| w.is_none());
            // Weights are not counted: all calls of a node share them.
            bytes += own.map(|(t, _)| t.bytes().len()).sum::<usize>();
            if bytes > BATCH_BYTES && !calls.is_empty() {
                break;
            }
            calls.push(call);
            expected.push(outputs);
        }
        Ok((calls, expected))
    }

    /// The verdict of one call. One that passes is handed to the filter, if it is to be looked at.
    fn judge(
        &self,
        job: Job,
        choices: &KernelChoices,
        filter: Option<(usize, &Filter)>,
    ) -> Result<Judgement> {
        let call = &job.calls[job.at];
        let outputs = job.outputs?;
        let exact = self.oracles.exact_outputs(job.case, || Ok(call))?;
        let target = choices.precision(job.case.node, &call.symbols)?;
        let judged = judge_call(call, &exact, &outputs, target, &job.expected)?;
        // What an operator of others would be without an attribute is known to nobody here.
        let filter = filter.filter(|_| !call.op.is_foreign());
        if let (true, Some((index, filter))) = (judged.passes(), filter) {
            filter.add((index, call), &|| self.oracles.inputs(call), &exact, &outputs, target)?;
        }
        Ok(judged)
    }

    /// In suite order, as the results are sorted.
    fn summary(&self, op: &str, results: &[CaseResult], choices: &KernelChoices) -> OpCheck {
        let mut check = OpCheck {
            op: op.to_string(),
            kernel: choices.names(|c| c.name.clone()),
            kernel_hash: choices.names(|c| c.hash.clone()),
            accumulate: choices.names(|c| c.accumulate.dtype.to_string()),
            histogram: vec![0; BUCKETS],
            ..OpCheck::default()
        };
        results.iter().for_each(|result| check.add(&self.judged_call(result, choices)));
        check
    }

    fn judged_call<'r>(&'r self, result: &'r CaseResult, choices: &'r KernelChoices) -> JudgedCall<'r> {
        let (suite, case) = (self.suite, result.case);
        let node = suite.graph().node(case.node);
        let kernel = choices.kernel_at(case.node, suite.phase(case)).ok().map(|choice| choice.name.as_str());
        JudgedCall { op: node.op.name(), case: suite.case_id(case), node: &node.name, kernel, result }
    }
}

/// Fails the call that shows most of each attribute that the filter finds lost.
fn accuse(results: &mut [CaseResult], cases: &[Case], filter: &Filter) {
    for lost in filter.lost_attributes() {
        let result = results.iter_mut().find(|r| cases.get(lost.call) == Some(&r.case));
        if let Some(CaseResult { outcome: Ok(judged), .. }) = result {
            *judged = judged.clone().with_lost_attribute(lost);
        }
    }
}

/// One replayed call on its way to a judge.
struct Job {
    case: Case,
    /// The batch, shared by its jobs.
    calls: Arc<Vec<Call>>,
    /// Its place in the batch.
    at: usize,
    /// What the source gave.
    expected: Vec<Tensor>,
    outputs: Result<Vec<Tensor>>,
}

/// The nodes with a call that was not run, each once with the first reason.
fn skipped_nodes(suite: &Suite, skipped: &[(Case, String)]) -> Vec<SkippedNode> {
    let mut nodes: Vec<SkippedNode> = Vec::new();
    for (case, reason) in skipped {
        let node = &suite.graph().node(case.node).name;
        if !nodes.iter().any(|n| n.node == *node) {
            nodes.push(SkippedNode { node: node.clone(), reason: reason.clone() });
        }
    }
    nodes
}
