//! From a failing call to its cause: the call repeated on the target, run once on the checking device, and handed to the
//! hypotheses.
//!
//! Hypotheses are those of `tapml-cause`. This file says which experiments they need and decides between calls that say different
//! things. It runs nothing but what `perform` runs for it.

use crate::context::{DiagnosisContext, Facts};
use crate::experiment::{Outcomes, Reasoned, RunBehind};
use crate::perform::{conclude, look};
use crate::report::Fault;
use std::sync::Arc;
use tapml_cause::{Cause, Earlier, Evidence, Explanation};
use tapml_device::{Finding, FindingKind};
use tapml_exec::Call;
use tapml_graph::{NodeId, Op, Result, Tensor};
use tapml_migrate::CaseResult;
use tapml_migrate::filter::Lost;
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
        note_crash(first, fault);
        return Ok(());
    };
    if let Some(lost) = failed.iter().find_map(|r| r.outcome.as_ref().ok()?.lost.as_ref()) {
        note_lost(&call.op, lost, fault);
        return Ok(());
    }
    let mut best: Option<Explanation> = None;
    for case in choose_cases(run, main, &judged, failed) {
        let recorded = RecordedCall::from_case(run, case)?;
        let found =
            conclude(run, |facts, outcomes| explain_recorded(facts, &recorded, &fault.findings, outcomes))?;
        let found = long_or_unknown(found, failed);
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
fn note_crash(first: &CaseResult, fault: &mut Fault) {
    let error = first.outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
    fault.cause = Cause::Crash.name().into();
    (fault.certain, fault.fit) = (true, 1.0);
    fault.evidence = format!("the kernel could not be built or run: {error}");
}

/// The fault of calls of which no element is wrong, but all of them have an error in common: no hypothesis about wrong elements
/// is left to test.
fn note_lost(op: &Op, lost: &Lost, fault: &mut Fault) {
    let left_out = || tapml_cause::of_left_out(op, &lost.attribute);
    let cause = if lost.is_rounding() { Cause::Rounding } else { left_out() };
    fault.cause = cause.name().into();
    (fault.fit, fault.evidence) = (lost.share.min(1.0), lost.text());
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

/// What is known of a recorded call that fails before anything is run for its explanation.
struct RecordedCall {
    call: Call,
    exact: Arc<Vec<Exact>>,
    /// What the target's kernel declares.
    precision: Precision,
    /// Calls of the same operator before it.
    before: Vec<Before>,
}

/// A call that ran before another, and what the source gives for it.
#[derive(Clone)]
struct Before {
    /// Name for the evidence.
    name: String,
    call: Call,
    /// What the source gives for it.
    recorded: Vec<Tensor>,
    /// Whether it was made up; see [`Earlier`].
    made: bool,
}

impl RecordedCall {
    /// Reads a case of the suite.
    fn from_case(run: &DiagnosisContext<'_>, case: Case) -> Result<RecordedCall> {
        let (call, _) = run.suite.call(case, run.model)?;
        let exact = run.oracles.exact_outputs(case, || Ok(&call))?;
        let precision = run.choices.precision(case.node, &call.symbols)?;
        Ok(RecordedCall { call, exact, precision, before: earlier_calls(run, case)? })
    }
}

/// Tests the hypotheses on a recorded call, on which a checking device reported these findings.
fn explain_recorded(
    facts: Facts<'_>,
    recorded: &RecordedCall,
    findings: &[Finding],
    outcomes: &Outcomes,
) -> Reasoned<Explanation> {
    let RecordedCall { call, exact, precision, before } = recorded;
    let mut observed = outcomes.repeats(call)?.to_vec();
    let mut before = before.clone();
    if let Some(other) = with_reversed_inputs(call)? {
        let calls = [other, call.clone()];
        if let Some(RunBehind { recorded, outputs }) = outcomes.run_behind(&calls)?.cloned() {
            let [other, _] = calls;
            before.push(Before {
                name: "with the inputs in reverse".into(),
                call: other,
                recorded,
                made: true,
            });
            // This run counts as one more repeat: it differs from the others only by what ran before it.
            observed.push(outputs);
        }
    }
    let earlier = before.iter().map(|Before { name, call, recorded, made }| Earlier {
        name,
        call,
        observed: &[],
        recorded,
        made: *made,
    });
    let earlier: Vec<Earlier<'_>> = earlier.collect();
    let evidence = Evidence {
        call,
        exact,
        observed: &observed,
        precision: *precision,
        earlier: &earlier,
        findings: &convert_findings(findings),
        after: None,
    };
    Ok(explain_evidence(facts, &evidence)?)
}

/// A call of an operator of others with its inputs in reverse; `None` for other operators. A platform that hands on the results
/// of the call before shows it right behind such a call.
fn with_reversed_inputs(call: &Call) -> Result<Option<Call>> {
    let Op::Foreign(_) = call.op else { return Ok(None) };
    let mut other = call.clone();
    let inputs = other.inputs.iter_mut().zip(&other.weights).filter(|(_, weight)| weight.is_none());
    for input in inputs.map(|(input, _)| input).filter(|input| input.dtype().is_float()) {
        let values: Vec<f64> = input.to_f64().into_iter().rev().collect();
        *input = Tensor::from_f64(input.dtype(), input.shape().to_vec(), &values)?;
    }
    Ok(Some(other))
}

/// Chooses the hypotheses: operators of others have none that know what the operator computes.
fn explain_evidence(facts: Facts<'_>, evidence: &Evidence<'_>) -> Result<Explanation> {
    match evidence.call.op {
        Op::Foreign(_) => tapml_cause::explain_foreign(evidence, facts.oracles),
        _ => tapml_cause::explain(evidence),
    }
}

/// The cause of a call of this node that is no case of the suite; see [`of_call`].
pub(crate) fn explain_new(
    facts: Facts<'_>,
    call: &Call,
    node: NodeId,
    outcomes: &Outcomes,
) -> Reasoned<Option<Explanation>> {
    let (observed, exact) = (outcomes.repeats(call)?, outcomes.exact(call)?);
    let precision = facts.choices.precision(node, &call.symbols)?;
    Ok(of_call(facts, call, exact, observed, precision)?)
}

/// The cause of a wrong call that is no case of the suite.
/// `None` if the target could not run it. Nothing is known of earlier calls or of defects.
pub(crate) fn of_call(
    facts: Facts<'_>,
    call: &Call,
    exact: &[Exact],
    observed: &[Vec<Tensor>],
    precision: Precision,
) -> Result<Option<Explanation>> {
    if observed.is_empty() {
        return Ok(None);
    }
    let evidence = Evidence { call, exact, observed, precision, earlier: &[], findings: &[], after: None };
    explain_evidence(facts, &evidence).map(Some)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{TestGraph, change, numbers, precision, run_right};
    use crate::report::{Fault, FaultKind};
    use std::cell::RefCell;
    use tapml_cause::{ErrorMap, Tested};
    use tapml_graph::{Error, Symbols};
    use tapml_migrate::verdict::judge;

    const GRAPH: &str = "graph test\ninput x: f32[7,16]\nweight w: f32[16,16]\ny: f32[7,16] = linear(x, w)\n\
                         z: f32[7,16] = onnx.Relu@13(y)\noutput y = y\noutput z = z\n";

    /// A call of a node of [`GRAPH`], with what is recorded of it.
    fn record(subject: &TestGraph, node: &str) -> RecordedCall {
        let inputs = subject.graph.input_types(subject.graph.node(subject.node(node)));
        let symbols = Symbols::np(7, 0);
        let sizes = inputs.iter().map(|ty| ty.sizes(&symbols).unwrap());
        let inputs = sizes.zip(1u32..).map(|(shape, seed)| numbers(&shape, seed)).collect();
        let call = subject.call(subject.node(node), &symbols, inputs);
        let exact = Arc::new(subject.oracles.exact(&call, 0).unwrap());
        RecordedCall { exact, precision: precision(&call), before: Vec::new(), call }
    }

    /// What explains a call of a node on a target that gives this.
    fn explain_call(node: &str, target: &crate::answers::Answer<'_>) -> Explanation {
        let subject = TestGraph::new(GRAPH);
        let recorded = record(&subject, node);
        subject.conclude(target, |facts, outcomes| explain_recorded(facts, &recorded, &[], outcomes))
    }

    #[test]
    fn wrong_values_are_explained_by_a_hypothesis_that_predicts_them() {
        let found = explain_call("y", &|call| change(run_right(call), |_, v| -v));
        assert_eq!((found.cause, found.certain), (Cause::WrongSign, true), "{}", found.evidence);
    }

    #[test]
    fn repeats_that_differ_are_a_race() {
        let runs = RefCell::new(0.0);
        let found = explain_call("y", &|call| {
            *runs.borrow_mut() += 0.1;
            let by = *runs.borrow();
            change(run_right(call), |i, v| if i % 3 == 0 { v + by } else { v })
        });
        assert_eq!(found.cause, Cause::Race, "{}", found.evidence);
    }

    #[test]
    fn a_runtime_that_hands_on_the_results_of_the_call_before_is_caught_behind_a_call_of_other_inputs() {
        let last: RefCell<Option<Vec<Tensor>>> = RefCell::new(None);
        let found = explain_call("z", &|call| {
            let right = run_right(call);
            last.borrow_mut().replace(right.clone()).unwrap_or(right)
        });
        assert_eq!(found.cause, Cause::StaleData, "{}", found.evidence);
        assert!(found.evidence.contains("with the inputs in reverse"), "{}", found.evidence);
    }

    #[test]
    fn calls_that_did_not_run_or_are_off_together_are_explained_by_their_verdicts() {
        let subject = TestGraph::new(GRAPH);
        let new = || Fault::of_nodes(subject.facts(), FaultKind::Operator, &[NodeId(0)], "p0.s0.y".into());
        let case = Case { frame: 0, node: NodeId(0) };
        let mut fault = new();
        note_crash(&CaseResult { case, outcome: Err(Error::bug("no such function")) }, &mut fault);
        assert_eq!((fault.cause.as_str(), fault.certain), ("crash", true));
        assert!(fault.evidence.contains("no such function"), "{}", fault.evidence);

        let lost = r#"{"attribute":"rounding of results","share":0.97,"error":0.01,"rows":40}"#;
        let mut fault = new();
        note_lost(&subject.graph.node(NodeId(0)).op, &serde_json::from_str(lost).unwrap(), &mut fault);
        assert_eq!((fault.cause.as_str(), fault.certain, fault.fit), ("rounding", false, 0.97));
    }

    #[test]
    fn a_long_sum_has_to_explain_every_call() {
        let subject = TestGraph::new(GRAPH);
        let RecordedCall { call, exact, precision, .. } = record(&subject, "y");
        let judged = judge(&exact, &change(run_right(&call), |_, v| -v), precision, None).unwrap();
        assert!(judged.one_chain.is_none());
        let result = CaseResult { case: Case { frame: 0, node: NodeId(0) }, outcome: Ok(judged) };
        let found = || make_explanation(&[(Cause::LongSum, 1.0)]);
        assert_eq!(long_or_unknown(found(), &[]).cause, Cause::LongSum);
        assert_eq!(long_or_unknown(found(), &[&result]).cause, Cause::Unknown);
    }

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
