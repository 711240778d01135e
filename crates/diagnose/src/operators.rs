//! Operators alone: every recorded call replayed on the target; what fails is grouped by kernel, one fault for each.
//!
//! Three kinds of calls show a fault: recorded ones, probes of the range of numbers, and calls made of recorded values. A kernel
//! gets one fault, in which the recorded calls come first.

use crate::context::DiagnosisContext;
use crate::group::{Group, by_kernel, describe, fails, same_code};
use crate::report::{Fault, FaultKind, UNKNOWN};
use crate::{explain, functions, impact, inner, made, not_run, rule, source};
use std::time::Instant;
use tapml_cause::Cause;
use tapml_exec::Phase;
use tapml_graph::{NodeId, Result};
use tapml_migrate::range_test::Overflow;
use tapml_migrate::report::{OpCheck, SkippedNode};
use tapml_migrate::suite::{Case, Suite};
use tapml_migrate::verdict::Criterion;
use tapml_migrate::{CaseResult, Checker, KernelChoices, MadeFailure, OpChecked, Oracles};

/// So many elements beyond a bound are no accident.
/// Below it the cause is told, but not as certain.
const CLEAR_COUNT: usize = 6;

/// A group that fails, and what probes of its kernel show beside.
/// It is explained after all operators are checked.
struct Failing {
    /// Name of the operator.
    op: &'static str,
    /// The calls of one kernel.
    group: Group,
    /// Probes that failed on nodes that this kernel serves.
    overflows: Vec<Overflow>,
}

/// Checks every operator and explains what fails.
/// Nodes that no recorded run reached are barred and named as skipped.
///
/// # Errors
///
/// What ends the diagnosis: a lost device, a request to stop, memory. A call that fails is a fault.
pub(crate) fn find(run: &mut DiagnosisContext<'_>) -> Result<()> {
    let unseen = |i: &u32| !run.suite.covers(NodeId(*i));
    let unseen: Vec<u32> = (0..run.suite.graph().nodes().len() as u32).filter(unseen).collect();
    for i in unseen {
        let node = run.name(NodeId(i)).to_string();
        run.barred.insert(node.clone());
        run.skipped.push(SkippedNode { node, reason: not_run::UNSEEN.into() });
    }
    let kinds: Vec<&'static str> = run.suite.graph().op_kinds().into_iter().map(|(op, _)| op).collect();
    of_kinds(run, &kinds)
}

/// The same of the operators that lowering puts in, on calls that are composed of the recorded ones of one phase.
///
/// # Errors
///
/// As [`find`].
pub(crate) fn find_lowered<'a>(
    run: &mut DiagnosisContext<'a>,
    suite: &'a Suite,
    oracles: &'a Oracles,
) -> Result<()> {
    let cases: Vec<Case> = suite.cases().collect();
    let choices = KernelChoices::of_cases(suite, run.target, &cases)?;
    let mut kinds: Vec<&'static str> = Vec::new();
    for case in &cases {
        let op = suite.graph().node(case.node).op.name();
        if !kinds.contains(&op) {
            kinds.push(op);
        }
        // Kernels of lowered operators are remembered, so that a user's kernel for one of them counts as used.
        let kernel =
            choices.kernel_at(case.node, suite.phase(*case)).map_or("", |choice| choice.name.as_str());
        if !run.lowered.iter().any(|(known, own)| (*known, own.as_str()) == (op, kernel)) {
            run.lowered.push((op, kernel.to_string()));
        }
    }
    run.with_suite(suite, oracles, choices, |run| of_kinds(run, &kinds))
}

/// Checks operators of the suite at hand and explains what fails.
fn of_kinds(run: &mut DiagnosisContext<'_>, kinds: &[&'static str]) -> Result<()> {
    let start = Instant::now();
    let calls = run.suite.cases().filter(|c| kinds.contains(&run.suite.graph().node(c.node).op.name()));
    run.progress.stage("check operators alone", calls.count() as u64);
    let (mut failing, mut overflowing, mut unreached) = (Vec::new(), Vec::new(), Vec::new());
    let mut of_source = Vec::new();
    for &op in kinds {
        run.stop.check()?;
        let checker = Checker::new(run.suite, run.model, run.oracles, run.progress, run.stop);
        let done = checker.op(run.target, op).map_err(|e| e.context(format!("operator `{op}`")))?;
        run.calls += done.check.cases;
        notes(run, &done);
        match not_run::of_checked(run, &done) {
            Some(missing) => run.not_run.push(missing),
            // Only operators whose calls all ran can be called clean.
            None => drop(run.checked.insert(op.to_string())),
        }
        run.barred.extend(done.check.skipped.iter().map(|s| s.node.clone()));
        run.skipped.extend(done.check.skipped.iter().cloned());
        // They are kept back: faults of the target come first in the report.
        of_source.extend(source::of_checked(run, op, &done.results)?);
        let groups: Vec<Group> = by_kernel(run, done.results).into_iter().filter(fails).collect();
        let of_group = |g: &Group, b: &Overflow| serves(run, &g.kernel, &b.node);
        // A probe of a kernel whose recorded calls fail too belongs to that fault.
        let (told, alone): (Vec<Overflow>, Vec<Overflow>) =
            done.check.overflows.into_iter().partition(|b| groups.iter().any(|g| of_group(g, b)));
        overflowing.extend(alone);
        // So does a made call.
        let recorded = |failure: &MadeFailure| groups.iter().any(|group| group.kernel == failure.made.kernel);
        unreached.extend(done.made.into_iter().filter(|failure| !recorded(failure)));
        for group in groups {
            let beyond: Vec<Overflow> = told.iter().filter(|b| of_group(&group, b)).cloned().collect();
            failing.push(Failing { op, group, overflows: beyond });
        }
    }
    run.add_time("check operators alone", start);
    let start = Instant::now();
    run.progress.stage("explain what fails", failing.len() as u64);
    for Failing { op, group, overflows: beyond } in failing {
        run.stop.check()?;
        let mut fault = fault(run, op, &group)?;
        beyond.iter().for_each(|beyond| show_overflow(&mut fault, beyond));
        run.progress.note(&format!("{}: {}", fault.op, fault.cause));
        // Also nodes whose calls happened to pass: they run the same wrong code.
        run.barred.extend(same_code(run, &fault.nodes));
        run.faults.push(fault);
        run.progress.advance(1);
    }
    for beyond in overflowing {
        overflows(run, &beyond);
    }
    made::find(run, unreached)?;
    run.faults.extend(of_source);
    run.add_time("explain what fails", start);
    Ok(())
}

/// Whether a kernel serves a node in either phase.
fn serves(run: &DiagnosisContext<'_>, kernel: &str, node: &str) -> bool {
    let node = run.suite.graph().find_node(node);
    let names = |phase| Some(run.choices.kernel_at(node?, phase).ok()?.name.as_str());
    Phase::ALL.into_iter().any(|phase| names(phase) == Some(kernel))
}

/// Adds what a probe shows of a kernel whose recorded calls fail, too. It names a cause that these leave open.
fn show_overflow(fault: &mut Fault, beyond: &Overflow) {
    let infinite = fault.criterion == Criterion::NonFinite.name();
    let cause = match beyond.chain {
        Some(_) => Some(Cause::LongSum),
        None => infinite.then_some(Cause::Overflow),
    };
    if let Some(cause) = cause.filter(|_| fault.cause == UNKNOWN) {
        fault.cause = cause.name().into();
    }
    fault.evidence += &format!("; beside the recorded calls a made-up one fails: {}", beyond.text());
}

/// Adds what a probe of the range shows of a kernel whose recorded calls all pass; one fault for each kernel.
fn overflows(run: &mut DiagnosisContext<'_>, beyond: &Overflow) {
    let nodes = same_code(run, std::slice::from_ref(&beyond.node));
    let ids: Vec<NodeId> = nodes.iter().filter_map(|n| run.suite.graph().find_node(n)).collect();
    run.barred.extend(nodes);
    let mut fault = Fault::of_nodes(run.facts(), FaultKind::Operator, &ids, format!("probe.{}", beyond.node));
    let kernel = |&id: &NodeId| run.choices.kernels(id).find(|choice| choice.hash == beyond.kernel_hash);
    if let Some(choice) = ids.iter().find_map(kernel) {
        fault.kernel = choice.name.clone();
    }
    let sum = beyond.chain.is_some();
    fault.cause = if sum { Cause::LongSum } else { Cause::Overflow }.name().into();
    // A sum errs beyond its bound for other reasons, too.
    (fault.certain, fault.fit) = (beyond.sharp && beyond.elements[0] >= CLEAR_COUNT, 1.0);
    fault.evidence =
        format!("every recorded call is right on this platform, but a made-up one is not: {}", beyond.text());
    let criterion = if sum { Criterion::Element } else { Criterion::NonFinite };
    fault.criterion = criterion.name().into();
    run.progress.note(&format!("{}: {}", fault.op, fault.cause));
    match run.faults.iter_mut().find(|f| f.kernel == fault.kernel && f.criterion == fault.criterion) {
        Some(known) => known.nodes.extend(fault.nodes),
        None => run.faults.push(fault),
    }
}

/// Things to know that are no faults.
fn notes(run: &mut DiagnosisContext<'_>, done: &OpChecked) {
    let OpCheck { op, undecided, .. } = &done.check;
    if *undecided > 0 {
        run.notes.push(format!(
            "{undecided} choices of `{op}` may go either way: a rounding decides them, and either is right"
        ));
    }
}

/// Everything that is known of a group that fails.
fn fault(run: &mut DiagnosisContext<'_>, op: &str, group: &Group) -> Result<Fault> {
    let mut fault = describe(run, op, group);
    let failed: Vec<&CaseResult> = group.results.iter().filter(|r| r.is_failed()).collect();
    explain::explain(run, &failed, &mut fault)?;
    rule::add_rule(run, group, &mut fault)?;
    // The device's functions are asked only where no certain cause is known.
    let judged = failed.iter().find(|r| r.outcome.is_ok()).filter(|_| !fault.certain);
    if let Some(poor) = judged.map(|r| functions::poor(run, r.case.node)).transpose()?.flatten() {
        fault.evidence += &format!("; {poor}");
    }
    if let Some(case) = failed.iter().find(|r| r.outcome.is_ok()).map(|r| r.case) {
        let (call, _) = run.suite.call(case, run.model)?;
        inner::describe_inner(run, &[(run.suite.case_id(case), &call)], case.node, &mut fault)?;
    }
    if run.options.impact {
        fault.output_impact = impact::of_worst(run, &failed)?;
    }
    Ok(fault)
}
