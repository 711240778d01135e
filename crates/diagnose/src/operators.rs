//! Operators alone: every recorded call replayed on the target; what fails is grouped by kernel, one fault for each.

use crate::diagnose::DiagnosisContext;
use crate::report::{Blames, Fault, FaultKind, UNKNOWN, Variant};
use crate::{explain, functions, impact, inner, made, not_run, rule, source};
use std::collections::{HashMap, HashSet};
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
const CLEAR_COUNT: usize = 6;

/// Calls of one operator that one kernel served.
pub(crate) struct Group {
    pub kernel: String,
    pub results: Vec<CaseResult>,
}

/// A group that fails, and what probes of its kernel show beside.
struct Failing {
    op: &'static str,
    group: Group,
    overflows: Vec<Overflow>,
}

/// Checks every operator and explains what fails.
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
        let kernel =
            choices.kernel_at(case.node, suite.phase(*case)).map_or("", |choice| choice.name.as_str());
        if !run.lowered.iter().any(|(known, own)| (*known, own.as_str()) == (op, kernel)) {
            run.lowered.push((op, kernel.to_string()));
        }
    }
    run.with_suite((suite, oracles, choices), |run| of_kinds(run, &kinds))
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
            None => drop(run.checked.insert(op.to_string())),
        }
        run.barred.extend(done.check.skipped.iter().map(|s| s.node.clone()));
        run.skipped.extend(done.check.skipped.iter().cloned());
        of_source.extend(source::of_checked(run, op, &done.results)?);
        let groups: Vec<Group> = by_kernel(run, done.results).into_iter().filter(fails).collect();
        let of_group = |g: &Group, b: &Overflow| serves(run, &g.kernel, &b.node);
        let (told, alone): (Vec<Overflow>, Vec<Overflow>) =
            done.check.overflows.into_iter().partition(|b| groups.iter().any(|g| of_group(g, b)));
        overflowing.extend(alone);
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
    let mut fault = Fault::between_operators(run, &ids, format!("probe.{}", beyond.node));
    fault.kind = FaultKind::Operator;
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

fn fails(group: &Group) -> bool {
    group.results.iter().any(CaseResult::is_failed)
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

fn by_kernel(run: &DiagnosisContext<'_>, results: Vec<CaseResult>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for result in results {
        let phase = run.suite.phase(result.case);
        let kernel = run.choices.kernel_at(result.case.node, phase).map_or("", |c| c.name.as_str());
        match groups.iter_mut().find(|g| g.kernel == kernel) {
            Some(group) => group.results.push(result),
            None => groups.push(Group { kernel: kernel.into(), results: vec![result] }),
        }
    }
    groups
}

/// The nodes that run the same code at the same types as one of these.
pub(crate) fn same_code(run: &DiagnosisContext<'_>, nodes: &[String]) -> Vec<String> {
    let graph = run.suite.graph();
    // A runtime of others has one version for all its operators.
    let hash = |id: NodeId| Some((graph.node(id).op.name(), run.choices.hash(id)?));
    let faulty: HashSet<(&str, String)> =
        nodes.iter().filter_map(|n| graph.find_node(n)).filter_map(hash).collect();
    let all = (0..graph.nodes().len() as u32).map(NodeId);
    let same = all.filter(|&id| hash(id).is_some_and(|h| faulty.contains(&h)));
    same.map(|id| graph.node(id).name.clone()).collect()
}

fn fault(run: &mut DiagnosisContext<'_>, op: &str, group: &Group) -> Result<Fault> {
    let mut fault = describe(run, op, group);
    let failed: Vec<&CaseResult> = group.results.iter().filter(|r| r.is_failed()).collect();
    explain::explain(run, &failed, &mut fault)?;
    rule::add_rule(run, group, &mut fault)?;
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

/// What the verdicts alone say of a group that fails.
pub(crate) fn describe(run: &DiagnosisContext<'_>, op: &str, group: &Group) -> Fault {
    let failed: Vec<&CaseResult> = group.results.iter().filter(|r| r.is_failed()).collect();
    let mut nodes: Vec<NodeId> = failed.iter().map(|r| r.case.node).collect();
    nodes.sort();
    nodes.dedup();
    let worst = failed.iter().max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let first = failed.first().copied();
    let judged = first.and_then(|r| r.outcome.as_ref().ok());
    let error = first.and_then(|r| r.outcome.as_ref().err());
    let case = |case: Case| run.suite.case_id(case);
    Fault {
        op: op.into(),
        kernel: group.kernel.clone(),
        nodes: nodes.iter().map(|&n| run.name(n).to_string()).collect(),
        kind: FaultKind::Operator,
        blames: Blames::Target,
        rule: None,
        cause: UNKNOWN.into(),
        certain: false,
        evidence: String::new(),
        inner_operator: None,
        first_bad_case: first.map(|r| case(r.case)).unwrap_or_default(),
        worst_case: worst.map(|r| case(r.case)),
        worst_ratio: worst.map_or(0.0, |r| r.ratio()),
        criterion: judged
            .map(|j| j.criterion.name().to_string())
            .or(error.map(|e| e.kind().name().to_string()))
            .unwrap_or_default(),
        element: judged.map(|j| j.worst),
        pattern: judged.and_then(|j| j.pattern.as_ref()).map(|p| p.text.clone()).unwrap_or_default(),
        error_map: None,
        cases: group.results.len() as u64,
        failed: failed.len() as u64,
        fit: 0.0,
        tested: Vec::new(),
        variants: variants(run, group),
        findings: Vec::new(),
        output_impact: None,
        reproduce: first
            .map(|r| run.reduction(&run.suite.path().display().to_string()).of_case(&case(r.case))),
    }
}

/// The kernel's variants: nodes with the same code and constants.
fn variants(run: &DiagnosisContext<'_>, group: &Group) -> Vec<Variant> {
    let graph = run.suite.graph();
    let mut order: Vec<Variant> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    for result in &group.results {
        let phase = run.suite.phase(result.case);
        let Ok(choice) = run.choices.kernel_at(result.case.node, phase) else { continue };
        let at = *index.entry(&choice.hash).or_insert_with(|| {
            let types = graph.input_types(graph.node(result.case.node));
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            order.push(Variant { types: types.join(", "), nodes: Vec::new(), cases: 0, failed: 0 });
            order.len() - 1
        });
        let variant = &mut order[at];
        variant.cases += 1;
        variant.failed += u64::from(result.is_failed());
        let name = run.name(result.case.node);
        if !variant.nodes.iter().any(|n| n == name) {
            variant.nodes.push(name.into());
        }
    }
    order
}
