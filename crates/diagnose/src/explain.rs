//! From a failing call to its cause: the call repeated on the target, run once on the checking device, and handed to the
//! hypotheses.
//!
//! Hypotheses are those of `tapml-cause`. This file gathers the evidence that they need and decides between calls that say different
//! things.

use crate::context::DiagnosisContext;
use crate::report::Fault;
use tapml_cause::{Cause, Earlier, Evidence, Explanation};
use tapml_device::{Finding, FindingKind};
use tapml_exec::{Call, Phase};
use tapml_graph::{ErrorKind, NodeId, Op, Result, Tensor};
use tapml_migrate::CaseResult;
use tapml_migrate::report::is_defect;
use tapml_migrate::suite::Case;
use tapml_migrate::verdict::{Exact, Precision};

/// Most failing calls whose cause is sought, as long as it is unknown.
/// Each is repeated on the target and tested against all hypotheses, which takes time.
const CALLS: usize = 3;
/// Most calls of the same operator before the failing one that are searched for stale values.
/// Half of them are runs before, half are nodes before.
const EARLIER: usize = 4;

/// Adds cause and evidence to a fault with these failing cases, the first one first.
///
/// # Errors
///
/// A request to stop, a lost device, or a suite whose values cannot be read.
pub(crate) fn explain(
    run: &mut DiagnosisContext<'_>,
    failed: &[&CaseResult],
    fault: &mut Fault,
) -> Result<()> {
    let Some(first) = failed.first() else { return Ok(()) };
    let (call, _) = run.suite.call(first.case, run.model)?;
    // Findings of the first call stand for all: hypotheses use them as hints.
    if !endless(first) {
        fault.findings = look(run, &call, first.case.node)?.findings;
    }
    let judged: Vec<Case> = failed.iter().filter(|r| r.outcome.is_ok()).map(|r| r.case).collect();
    // Every call failed to run, so there are no values to explain.
    let Some(&main) = judged.first() else {
        return note_crash(first, fault);
    };
    if let Some(lost) = failed.iter().find_map(|r| r.outcome.as_ref().ok()?.lost.as_ref()) {
        // No element is wrong, so no hypothesis about wrong elements is left to test.
        let left_out = || tapml_cause::of_left_out(&call.op, &lost.attribute);
        let cause = if lost.is_rounding() { Cause::Rounding } else { left_out() };
        fault.cause = cause.name().into();
        (fault.fit, fault.evidence) = (lost.share.min(1.0), lost.text());
        return Ok(());
    }
    let mut best: Option<Explanation> = None;
    for case in choose_cases(run, main, &judged, failed) {
        run.stop.check()?;
        let found = long_or_unknown(of_case(run, case, &fault.findings)?, failed);
        let known = found.cause != Cause::Unknown;
        // The first call has the most to say, as long as it says something.
        if known || best.is_none() {
            best = Some(found);
        }
        if known {
            break;
        }
    }
    if let Some(found) = best {
        put(fault, found);
    }
    Ok(())
}

/// A longer chain of additions is the cause only if it explains every call that fails: one of them may be nearly right by
/// chance.
fn long_or_unknown(found: Explanation, failed: &[&CaseResult]) -> Explanation {
    let within = |r: &&CaseResult| r.outcome.as_ref().is_ok_and(|j| j.one_chain.is_some());
    if found.cause != Cause::LongSum || failed.iter().all(within) {
        return found;
    }
    let evidence = format!(
        "other calls fail by more than a longer chain of additions explains; here {}",
        found.evidence
    );
    Explanation { cause: Cause::Unknown, certain: false, evidence, ..found }
}

/// A share of what is wrong in another call from which on a cause explains that call, too.
/// The rest may be elements that several faults or chance made wrong.
const EXPLAINS: f64 = 0.9;

/// The cause of a failing call, given up if it does not explain another failing call of the kernel; then it is one that
/// explains both, if there is one. It is not certain where it was not tested on the other.
///
/// `name` is that of the other call, for the evidence.
pub(crate) fn held_against(found: Explanation, other: &Explanation, name: &str) -> Explanation {
    let fit = |e: &Explanation, cause| e.tested.iter().find(|t| t.cause == cause).map(|t| t.fit);
    let explains = |e: &Explanation, cause| fit(e, cause).is_some_and(|fit| fit >= EXPLAINS);
    let share = match fit(other, found.cause) {
        Some(share) if share < EXPLAINS => share,
        // Either it explains the other call too, or it was not tested there and stays, but is not certain.
        tested => return Explanation { certain: found.certain && tested.is_some(), ..found },
    };
    let rest = format!("but of what is wrong in `{name}` that explains {:.0} %", 100.0 * share);
    // Hypotheses are listed best first, so this is the best one for both.
    let both = found.tested.iter().find(|t| explains(&found, t.cause) && explains(other, t.cause));
    let (cause, evidence) = match both {
        Some(t) => (t.cause, format!("{}; {rest}, while this explains both: {}", found.evidence, t.note)),
        None => (Cause::Unknown, format!("no hypothesis fits all calls; here {}; {rest}", found.evidence)),
    };
    Explanation { cause, certain: false, evidence, ..found }
}

/// The calls whose cause is sought: the first of several rows that fails, the one that fails most, and the smallest.
/// Several rows tell more than one: many faults spare the first row. The smallest is the quickest to test.
fn choose_cases(
    run: &DiagnosisContext<'_>,
    main: Case,
    judged: &[Case],
    failed: &[&CaseResult],
) -> Vec<Case> {
    let worst = failed.iter().filter(|r| r.outcome.is_ok()).max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let rows = |case: &&Case| run.suite.frames()[case.frame].symbols.get(tapml_graph::Symbol::N);
    let smallest = judged.iter().min_by_key(rows).copied();
    let several = judged.iter().find(|case| rows(case).is_some_and(|n| n > 1)).copied();
    let mut cases = vec![several.unwrap_or(main)];
    for case in worst.map(|r| r.case).into_iter().chain(smallest) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases.truncate(CALLS);
    cases
}

/// Whether a device stopped the kernel because it did not end: it would not end on the checking device either.
fn endless(result: &CaseResult) -> bool {
    result.outcome.as_ref().is_err_and(|e| e.detail("deadline").is_some())
}

/// The fault of calls that all failed to run. It is certain, because the error is the observation.
fn note_crash(first: &CaseResult, fault: &mut Fault) -> Result<()> {
    let error = first.outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
    fault.cause = Cause::Crash.name().into();
    (fault.certain, fault.fit) = (true, 1.0);
    fault.evidence = format!("the kernel could not be built or run: {error}");
    Ok(())
}

/// Copies an explanation into the report, with the first defect that a checking device saw if the evidence lacks it.
fn put(fault: &mut Fault, found: Explanation) {
    fault.cause = found.cause.name().into();
    fault.certain = found.certain;
    fault.evidence = found.evidence;
    if let Some(finding) = fault.findings.iter().find(|f| is_defect(f))
        && !fault.evidence.contains(&finding.message)
    {
        fault.evidence += &format!("; {finding}");
    }
    (fault.fit, fault.rule) = (found.fit, found.rule);
    fault.tested = found.tested;
    fault.error_map = Some(found.error_map);
}

/// Tests the hypotheses on a recorded call.
fn of_case(run: &mut DiagnosisContext<'_>, case: Case, findings: &[Finding]) -> Result<Explanation> {
    let (call, _) = run.suite.call(case, run.model)?;
    let mut observed = repeats(run, &call)?;
    let exact = run.oracles.exact_outputs(case, || Ok(&call))?;
    let precision = run.choices.precision(case.node, &call.symbols)?;
    let mut before = earlier_calls(run, case)?;
    if let Some((other, outputs)) = after_another(run, &call)? {
        before.push(other);
        // This run counts as one more repeat: it differs from the others only by what ran before it.
        observed.push(outputs);
    }
    let earlier = before.iter().map(|Before { name, call, recorded, made }| Earlier {
        name,
        call,
        observed: &[],
        recorded,
        made: *made,
    });
    let earlier: Vec<Earlier<'_>> = earlier.collect();
    let findings = convert_findings(findings);
    let evidence = Evidence {
        call: &call,
        exact: &exact,
        observed: &observed,
        precision,
        earlier: &earlier,
        findings: &findings,
        after: None,
    };
    explain_evidence(run, &evidence)
}

/// A call that ran before another, and what the source gives for it.
struct Before {
    /// Name for the evidence.
    name: String,
    call: Call,
    /// What the source gives for it.
    recorded: Vec<Tensor>,
    /// Whether it was made up; see [`Earlier`].
    made: bool,
}

/// A call of an operator of others with its inputs in reverse, what the source gives for it, and what the target gives for the
/// call itself right after it: a platform that hands on the results of the call before shows it so.
fn after_another(run: &mut DiagnosisContext<'_>, call: &Call) -> Result<Option<(Before, Vec<Tensor>)>> {
    let mut other = call.clone();
    let Op::Foreign(_) = call.op else { return Ok(None) };
    let inputs = other.inputs.iter_mut().zip(&other.weights).filter(|(_, weight)| weight.is_none());
    for input in inputs.map(|(input, _)| input).filter(|input| input.dtype().is_float()) {
        let values: Vec<f64> = input.to_f64().into_iter().rev().collect();
        *input = Tensor::from_f64(input.dtype(), input.shape().to_vec(), &values)?;
    }
    let mut recorded = None;
    run.source.replay(std::slice::from_ref(&other), &mut |_, outputs| recorded = outputs.ok())?;
    let mut last = None;
    // In one replay, so that nothing runs between the two.
    let calls = [other.clone(), call.clone()];
    // If only the first of them gives outputs, they are not taken for those of the second.
    run.target.replay(&calls, &mut |at, outputs| last = outputs.ok().filter(|_| at == 1).or(last.take()))?;
    let name = "with the inputs in reverse".to_string();
    Ok(recorded.zip(last).map(|(recorded, last)| (Before { name, call: other, recorded, made: true }, last)))
}

/// Chooses the hypotheses: operators of others have none that know what the operator computes.
fn explain_evidence(run: &DiagnosisContext<'_>, evidence: &Evidence<'_>) -> Result<Explanation> {
    match evidence.call.op {
        Op::Foreign(_) => tapml_cause::explain_foreign(evidence, run.oracles),
        _ => tapml_cause::explain(evidence),
    }
}

/// The cause of a wrong call that is no case of the suite.
/// `None` if the target could not run it. Nothing is known of earlier calls or of defects.
pub(crate) fn of_call(
    run: &DiagnosisContext<'_>,
    call: &Call,
    exact: &[Exact],
    observed: &[Vec<Tensor>],
    precision: Precision,
) -> Result<Option<Explanation>> {
    run.stop.check()?;
    if observed.is_empty() {
        return Ok(None);
    }
    let evidence = Evidence { call, exact, observed, precision, earlier: &[], findings: &[], after: None };
    explain_evidence(run, &evidence).map(Some)
}

/// Recorded calls of the same operator before a case: of the same node in the runs before, and of other nodes in the same
/// run.
fn earlier_calls(run: &DiagnosisContext<'_>, case: Case) -> Result<Vec<Before>> {
    let graph = run.suite.graph();
    let op = graph.node(case.node).op.name();
    let frames = (0..case.frame).rev().take(EARLIER / 2).map(|frame| Case { frame, ..case });
    let nodes = (0..case.node.0).rev().map(NodeId).filter(|&id| graph.node(id).op.name() == op);
    let nodes = nodes.take(EARLIER / 2).map(|node| Case { node, ..case });
    // Not every node is recorded in every frame.
    let all = frames.chain(nodes).filter(|&case| run.suite.cases().any(|c| c == case));
    all.map(|case| {
        let (call, recorded) = run.suite.call(case, run.model)?;
        Ok(Before { name: run.suite.case_id(case), call, recorded, made: false })
    })
    .collect()
}

/// Findings in the words of `tapml-cause`, which does not know devices.
fn convert_findings(findings: &[Finding]) -> Vec<tapml_cause::DeviceFinding> {
    let told = |f: &Finding| tapml_cause::DeviceFinding {
        kind: f.kind.name().into(),
        message: f.message.clone(),
        line: f.line,
    };
    findings.iter().map(told).collect()
}

/// The cause that a defect seen by a checking device names.
/// Findings that are no defects of a kernel, such as a limit, name none.
pub(crate) fn finding_cause(kind: FindingKind) -> Cause {
    match kind {
        FindingKind::OutOfBounds => Cause::OutOfBounds,
        FindingKind::UninitializedRead => Cause::Uninitialised,
        FindingKind::RaceInWorkgroup | FindingKind::RaceAcrossWorkgroups | FindingKind::DivergentBarrier => {
            Cause::Race
        }
        FindingKind::NonFinite => Cause::Overflow,
        _ => Cause::Unknown,
    }
}

/// The outputs of the call, as often as the options say; a repeat that could not be run is left out.
pub(crate) fn repeats(run: &mut DiagnosisContext<'_>, call: &Call) -> Result<Vec<Vec<Tensor>>> {
    let mut observed = Vec::new();
    for _ in 0..run.options.repeats {
        let keep = &mut |_, outputs: Result<Vec<Tensor>>| observed.extend(outputs);
        run.target.replay(std::slice::from_ref(call), keep)?;
    }
    Ok(observed)
}

/// Whether two outputs have the same bits.
/// NaNs of different payloads differ, and so do zeros of different signs.
pub(crate) fn are_same(a: &[Tensor], b: &[Tensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes()[..] == b.bytes()[..])
}

/// What the checking device saw of a call.
#[derive(Default)]
pub(crate) struct Look {
    /// Everything it reported; not all of it is a defect.
    pub findings: Vec<Finding>,
    /// Why it did not run the call, or not to its end.
    pub missed: Option<String>,
}

/// What the checking device sees in a call, if it runs the same kernel.
/// Findings of calls before are thrown away first, so that each finding belongs to this call.
pub(crate) fn look(run: &mut DiagnosisContext<'_>, call: &Call, node: NodeId) -> Result<Look> {
    let missed = |reason: &str| Look { missed: Some(reason.into()), ..Look::default() };
    let Some(checker) = run.checker.as_deref_mut() else { return Ok(missed("there is no checking device")) };
    let phase = Phase::of_run(&call.symbols);
    let same =
        match (checker.kernel_for(&call.op, &call.input_types, phase), run.choices.kernel_at(node, phase)) {
            // Another kernel would tell nothing of the target's.
            (Ok(own), Ok(choice)) => own.hash == choice.hash,
            _ => false,
        };
    if !same {
        return Ok(missed("the checking device runs another kernel"));
    }
    checker.take_findings();
    let mut error = None;
    checker.replay(std::slice::from_ref(call), &mut |_, outputs| error = outputs.err())?;
    // What a checker cannot survive is no reason to end the diagnosis of another platform.
    let lost = error.as_ref().is_some_and(|e| e.kind() == ErrorKind::DeviceLost);
    let findings = if lost { Vec::new() } else { checker.take_findings() };
    Ok(Look { findings, missed: error.map(|e| e.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_cause::{ErrorMap, Tested};

    fn make_explanation(tested: &[(Cause, f64)]) -> Explanation {
        let tested = tested.iter().map(|&(cause, fit)| Tested { cause, fit, note: cause.name().into() });
        let tested: Vec<Tested> = tested.collect();
        let (cause, picture) = (tested[0].cause, ErrorMap::default());
        Explanation {
            cause,
            certain: true,
            evidence: "that is it".into(),
            fit: 1.0,
            rule: None,
            tested,
            error_map: picture,
        }
    }

    #[test]
    fn a_cause_has_to_explain_other_calls_too() {
        let found = || {
            make_explanation(&[(Cause::WrongCast, 1.0), (Cause::MaskShifted, 0.95), (Cause::WrongScale, 0.1)])
        };
        let against = |other: &[(Cause, f64)]| {
            let held = held_against(found(), &make_explanation(other), "made.n64.p7.a");
            (held.cause, held.certain, held.evidence)
        };
        assert_eq!(against(&[(Cause::WrongCast, 0.97)]), (Cause::WrongCast, true, "that is it".into()));
        let (cause, certain, _) = against(&[(Cause::Race, 1.0)]);
        assert_eq!((cause, certain), (Cause::WrongCast, false), "nothing is said of it");
        let (cause, certain, evidence) = against(&[(Cause::MaskShifted, 1.0), (Cause::WrongCast, 0.2)]);
        assert_eq!((cause, certain), (Cause::MaskShifted, false));
        assert!(evidence.contains("in `made.n64.p7.a` that explains 20 %"), "{evidence}");
        let (cause, certain, _) = against(&[(Cause::WrongScale, 1.0), (Cause::WrongCast, 0.2)]);
        assert_eq!((cause, certain), (Cause::Unknown, false));
    }
}
