//! The decision about an operator, or about several nodes together: a function of the evidence and of nothing else. It runs nothing and reads no clock; what
//! is missing, it asks for.

use crate::ledger::{Entry, OpState};
use crate::model_check::ModelCheck;
use crate::regions::{RegionOutcome, SmallestRegion};
use crate::report::{OpCheck, SkippedNode, is_defect};
use tapml_graph::{ErrorKind, Result};

/// Why a node that the target has a kernel for was not checked.
pub(crate) const UNSEEN: &str = "no run needed it: give a prompt with an image";
/// Why an operator that lowering puts in is not looked at.
const NOT_ALL_RUN: &str = "not every operator runs on the target, so that nothing is fused";
/// Why a composed operator has no check.
const NOT_REACHED: &str = "no recorded run reaches it: add a prompt that does";

/// What is known of an operator of the graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    /// Its nodes that a recorded run ran and the target has kernels for.
    pub nodes: &'a [String],
    /// Its other nodes, with the reason.
    pub skipped: &'a [SkippedNode],
    /// The check of its calls alone; `None` if it was not made.
    pub check: Option<&'a OpCheck>,
    /// The check of the hybrid model with it, or why the hybrid did not run; `None` if nobody tried.
    pub model: Option<&'a Result<ModelCheck>>,
}

/// What is known of an operator that lowering puts in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComposedEvidence<'a> {
    /// Whether all operators of the graph are accepted.
    pub all_run: bool,
    /// Whether recorded runs reach all its nodes of a phase.
    pub reached: bool,
    /// The check of its calls alone; `None` if it was not made.
    pub check: Option<&'a OpCheck>,
}

/// What follows from the evidence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing yet: its calls must be checked alone.
    Check,
    /// Nothing yet: the model must be checked with these nodes on the target. Of an operator that lowering puts in, none are
    /// named.
    CheckModel(Vec<String>),
    /// The operator is decided.
    Settled(Settled),
}

/// A decision that stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settled {
    /// Where the operator stands.
    pub state: OpState,
    /// Why it is not accepted.
    pub reason: Option<String>,
    /// What decided.
    pub basis: Basis,
}

/// The evidence that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// No node of the operator can be checked.
    Nodes,
    /// The check of its calls alone.
    Check,
    /// The check of the model with it.
    Model,
}

impl Settled {
    /// By the check of the model.
    pub(crate) fn by_model(model: &ModelCheck) -> Settled {
        let (state, reason) =
            if model.passed { (OpState::Accepted, None) } else { (OpState::Rejected, Some(model.reason())) };
        Settled { state, reason, basis: Basis::Model }
    }

    /// Enters the decision. Evidence of checks that were not reached this time is cleared.
    pub(crate) fn enter(self, entry: &mut Entry) {
        (entry.state, entry.reason) = (self.state, self.reason);
        match self.basis {
            Basis::Nodes => {
                entry.kernel.clear();
                (entry.check, entry.model) = (None, None);
            }
            Basis::Check => (entry.model, entry.model_key) = (None, None),
            Basis::Model => {}
        }
    }
}

/// What became of nodes that ran together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RegionDecision {
    /// They are right together.
    Passed,
    /// The target does not run them as one model, for this reason.
    Skipped(String),
    /// They are wrong together, or break, for this reason.
    Failed(String),
}

/// Decides a region of accepted nodes.
pub(crate) fn decide_region(found: &SmallestRegion) -> RegionDecision {
    match (&found.outcome, found.outcome.reason()) {
        (RegionOutcome::NotServed(_), Some(reason)) => RegionDecision::Skipped(reason),
        (_, Some(reason)) => RegionDecision::Failed(reason),
        (_, None) if found.failing.is_empty() => RegionDecision::Passed,
        (_, None) => RegionDecision::Failed("it failed, and passed when it ran again".into()),
    }
}

/// A decision with its reason.
fn settle(basis: Basis, state: OpState, reason: impl Into<String>) -> Decision {
    Decision::Settled(Settled { state, reason: Some(reason.into()), basis })
}

/// Decides an operator of the graph.
///
/// # Errors
/// That of the hybrid model, if it says nothing of the operator.
pub(crate) fn decide(evidence: &Evidence<'_>) -> Result<Decision> {
    let Evidence { nodes, skipped, check, model } = *evidence;
    if nodes.is_empty() {
        // More prompts would help, which is not so where the target has no kernel.
        let unseen = skipped.iter().all(|node| node.reason == UNSEEN);
        let state = if unseen { OpState::Pending } else { OpState::Unsupported };
        let reason = skipped.first().map(|node| node.reason.clone());
        return Ok(Decision::Settled(Settled { state, reason, basis: Basis::Nodes }));
    }
    let Some(check) = check else { return Ok(Decision::Check) };
    let placed: Vec<String> = nodes.iter().filter(|name| !is_refused(name, check)).cloned().collect();
    // A node whose call was refused stays on the source; the operator may be accepted without it.
    if !check.passes() || placed.is_empty() {
        return Ok(by_failed_check(check));
    }
    match model {
        None => Ok(Decision::CheckModel(placed)),
        Some(Ok(model)) => Ok(Decision::Settled(Settled::by_model(model))),
        Some(Err(e)) => match e.kind() {
            ErrorKind::Unsupported => Ok(settle(Basis::Model, OpState::Unsupported, e.to_string())),
            kind @ (ErrorKind::OutOfMemory | ErrorKind::Compile) => {
                Ok(settle(Basis::Model, OpState::Rejected, format!("{}: {e}", kind.name())))
            }
            // Says nothing of the operator: the migration ends, and goes on from its ledger.
            _ => Err(e.clone()),
        },
    }
}

/// Decides an operator that lowering puts in, up to the check of the model, which looks at several of them together.
pub(crate) fn decide_composed(evidence: &ComposedEvidence<'_>) -> Decision {
    let ComposedEvidence { all_run, reached, check } = *evidence;
    match check {
        _ if !all_run => settle(Basis::Nodes, OpState::Pending, NOT_ALL_RUN),
        _ if !reached => settle(Basis::Nodes, OpState::Pending, NOT_REACHED),
        None => Decision::Check,
        Some(check) if check.passes() => Decision::CheckModel(Vec::new()),
        Some(check) => settle(Basis::Check, OpState::Rejected, rejection(check)),
    }
}

/// Whether the target refused a call of this node, which then stays on the source.
fn is_refused(node: &str, check: &OpCheck) -> bool {
    check.skipped.iter().any(|skipped| skipped.node == node)
}

/// By a check that fails, or after which no node is left.
fn by_failed_check(check: &OpCheck) -> Decision {
    // A check that passes comes here only where every node was refused.
    let unsupported = check.unsupported.is_some() || check.passes();
    match check.skipped.first() {
        Some(first) if unsupported => settle(Basis::Check, OpState::Unsupported, first.reason.clone()),
        _ if unsupported => settle(Basis::Check, OpState::Unsupported, rejection(check)),
        _ => settle(Basis::Check, OpState::Rejected, rejection(check)),
    }
}

/// Why an operator failed its check alone, in one sentence.
fn rejection(check: &OpCheck) -> String {
    if let Some(finding) = check.findings.iter().find(|f| is_defect(f)) {
        return format!("a defect in the kernel: {finding}");
    }
    if let (0, Some(beyond)) = (check.failed, check.overflows.first()) {
        return format!("every recorded case passes, but a made-up call does not: {}", beyond.text());
    }
    if let (0, Some(made)) = (check.failed, check.made_failures.first()) {
        let why = made.error.clone().unwrap_or_else(|| format!("{:.3e} times the allowed error", made.ratio));
        let what = "every recorded case passes, but a call made of recorded values does not";
        return format!("{what}: {} ({why})", made.case);
    }
    let worst = check.worst.as_ref().map(|w| format!(", worst {} at {:.3e} times", w.case, w.ratio));
    let first = check.failures.iter().find(|f| check.worst.as_ref().is_some_and(|w| w.case == f.case));
    let first = first.or(check.failures.first());
    let why = first.map(|f| match (&f.error, &f.pattern) {
        (Some(error), _) => format!(": {error}"),
        (None, Some(pattern)) => format!(" ({}; {})", f.criterion, pattern.text),
        (None, None) => format!(" ({})", f.criterion),
    });
    format!(
        "{} of {} cases exceed the allowed error{}{}",
        check.failed,
        check.cases,
        worst.unwrap_or_default(),
        why.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use OpState::{Accepted, Pending, Rejected, Unsupported};
    use tapml_graph::{Error, NodeId};

    fn skip(node: &str, reason: &str) -> SkippedNode {
        SkippedNode { node: node.into(), reason: reason.into() }
    }

    fn names(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(ToString::to_string).collect()
    }

    fn good_check() -> OpCheck {
        OpCheck { cases: 4, ..OpCheck::default() }
    }

    fn bad_check() -> OpCheck {
        OpCheck { failed: 1, ..good_check() }
    }

    /// A check of which no case ran.
    fn unsupported(skipped: Vec<SkippedNode>) -> OpCheck {
        OpCheck { unsupported: Some("no subgroups".into()), skipped, ..OpCheck::default() }
    }

    fn bad_model() -> ModelCheck {
        ModelCheck { max_logit_error: 2.0, allowed: 1.0, ..ModelCheck::default() }
    }

    fn decision(basis: Basis, state: OpState, reason: Option<&str>) -> Decision {
        Decision::Settled(Settled { state, reason: reason.map(String::from), basis })
    }

    #[test]
    fn nodes_come_first() {
        let check = good_check();
        let none = "no kernel";
        let table = [
            (vec![], decision(Basis::Nodes, Pending, None)),
            (vec![skip("a", UNSEEN), skip("b", UNSEEN)], decision(Basis::Nodes, Pending, Some(UNSEEN))),
            (vec![skip("a", none)], decision(Basis::Nodes, Unsupported, Some(none))),
            (vec![skip("a", UNSEEN), skip("b", none)], decision(Basis::Nodes, Unsupported, Some(UNSEEN))),
        ];
        for (skipped, expected) in &table {
            // Whatever an older check says.
            for check in [None, Some(&check)] {
                let evidence = Evidence { nodes: &[], skipped, check, model: None };
                assert_eq!(decide(&evidence).unwrap(), *expected, "{skipped:?}");
            }
        }
    }

    #[test]
    fn then_the_check_of_the_calls() {
        let nodes = names(&["a", "b"]);
        let wrong = "1 of 4 cases exceed the allowed error";
        let refused = |check: OpCheck, nodes: &[&str]| OpCheck {
            skipped: nodes.iter().map(|node| skip(node, "too long a row")).collect(),
            ..check
        };
        let too_long = Some("too long a row");
        let nothing_ran = "0 of 0 cases exceed the allowed error";
        let table = [
            (None, Decision::Check),
            (Some(good_check()), Decision::CheckModel(nodes.clone())),
            (Some(refused(good_check(), &["a"])), Decision::CheckModel(names(&["b"]))),
            (Some(refused(good_check(), &["a", "b"])), decision(Basis::Check, Unsupported, too_long)),
            (Some(bad_check()), decision(Basis::Check, Rejected, Some(wrong))),
            (Some(refused(bad_check(), &["a"])), decision(Basis::Check, Rejected, Some(wrong))),
            (Some(refused(bad_check(), &["a", "b"])), decision(Basis::Check, Rejected, Some(wrong))),
            (
                Some(unsupported(vec![skip("a", "too long a row")])),
                decision(Basis::Check, Unsupported, too_long),
            ),
            (Some(unsupported(Vec::new())), decision(Basis::Check, Unsupported, Some(nothing_ran))),
        ];
        for (check, expected) in &table {
            let evidence = Evidence { nodes: &nodes, skipped: &[], check: check.as_ref(), model: None };
            assert_eq!(decide(&evidence).unwrap(), *expected, "{check:?}");
        }
    }

    #[test]
    fn then_the_hybrid_model() {
        let (nodes, check) = (names(&["a"]), good_check());
        let on = |model: Result<ModelCheck>| {
            decide(&Evidence { nodes: &nodes, skipped: &[], check: Some(&check), model: Some(&model) })
        };
        let table = [
            (
                Ok(ModelCheck { passed: true, ..ModelCheck::default() }),
                decision(Basis::Model, Accepted, None),
            ),
            (Ok(bad_model()), decision(Basis::Model, Rejected, Some(&bad_model().reason()))),
            (
                Err(Error::unsupported("no such graph")),
                decision(Basis::Model, Unsupported, Some("no such graph")),
            ),
            (
                Err(Error::new(ErrorKind::OutOfMemory, "4 GiB asked")),
                decision(Basis::Model, Rejected, Some("out of memory: 4 GiB asked")),
            ),
            (
                Err(Error::new(ErrorKind::Compile, "line 3")),
                decision(Basis::Model, Rejected, Some("compile error: line 3")),
            ),
        ];
        for (model, expected) in table {
            assert_eq!(on(model.clone()).unwrap(), expected, "{model:?}");
        }
        for kind in [ErrorKind::DeviceLost, ErrorKind::Interrupted, ErrorKind::Io, ErrorKind::Bug] {
            assert_eq!(on(Err(Error::new(kind, "gone"))).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn what_lowering_puts_in_waits_for_the_operators_of_the_graph() {
        let (passing, failing, refused) = (good_check(), bad_check(), unsupported(Vec::new()));
        let pending = |reason| decision(Basis::Nodes, Pending, Some(reason));
        let rejected = |reason| decision(Basis::Check, Rejected, Some(reason));
        let table = [
            ((false, false, None), pending(NOT_ALL_RUN)),
            ((false, true, Some(&passing)), pending(NOT_ALL_RUN)),
            ((true, false, Some(&passing)), pending(NOT_REACHED)),
            ((true, true, None), Decision::Check),
            ((true, true, Some(&failing)), rejected("1 of 4 cases exceed the allowed error")),
            ((true, true, Some(&refused)), rejected("0 of 0 cases exceed the allowed error")),
            ((true, true, Some(&passing)), Decision::CheckModel(Vec::new())),
        ];
        for ((all_run, reached, check), expected) in table {
            let evidence = ComposedEvidence { all_run, reached, check };
            assert_eq!(decide_composed(&evidence), expected, "{evidence:?}");
        }
    }

    #[test]
    fn nodes_that_failed_once_together_do_not_pass() {
        let refused = || Error::unsupported("node by node");
        let table = [
            (vec![], RegionOutcome::Passed { ratio: 0.5 }, RegionDecision::Passed),
            (
                vec![NodeId(3)],
                RegionOutcome::Passed { ratio: 0.5 },
                RegionDecision::Failed("it failed, and passed when it ran again".into()),
            ),
            (vec![], RegionOutcome::NotServed(refused()), RegionDecision::Skipped("node by node".into())),
            (
                vec![NodeId(3)],
                RegionOutcome::NotServed(refused()),
                RegionDecision::Skipped("node by node".into()),
            ),
            (
                vec![NodeId(3)],
                RegionOutcome::Failed(Error::new(ErrorKind::Compile, "line 3")),
                RegionDecision::Failed("line 3".into()),
            ),
        ];
        for (failing, outcome, expected) in table {
            let found = SmallestRegion { failing: failing.into_iter().collect(), outcome };
            assert_eq!(decide_region(&found), expected, "{found:?}");
        }
    }

    #[test]
    fn a_decision_clears_what_was_not_reached() {
        let key = Some(crate::hash::Hash::compute(b"key"));
        let full = Entry {
            op: "add".into(),
            kernel: "add/portable".into(),
            check: Some(good_check()),
            check_key: key,
            model: Some(bad_model()),
            model_key: key,
            seconds: 2.0,
            ..Entry::default()
        };
        let enter = |basis| {
            let mut entry = full.clone();
            Settled { state: Rejected, reason: Some("wrong".into()), basis }.enter(&mut entry);
            entry
        };
        let decided = Entry { state: Rejected, reason: Some("wrong".into()), ..full.clone() };
        assert_eq!(enter(Basis::Model), decided);
        assert_eq!(enter(Basis::Check), Entry { model: None, model_key: None, ..decided.clone() });
        let unchecked = Entry { kernel: String::new(), check: None, model: None, ..decided };
        assert_eq!(enter(Basis::Nodes), unchecked);
    }
}
