//! Faults between operators in someone else's runtime: the nodes that are right alone run as one model, which the runtime fuses,
//! lays out and plans as it does whole models, and are compared at the borders. What fails is made small.
//!
//! A region is a set of nodes that run as one model. Its inputs are recorded values, so a region that fails is wrong by itself.

use crate::context::DiagnosisContext;
use crate::report::{Fault, FaultKind};
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;
use tapml_cause::{Cause, explain_region};
use tapml_graph::{NodeId, Op, Result, Symbols};
use tapml_migrate::report::SkippedNode;
use tapml_migrate::suite::Case;
use tapml_migrate::verdict::{Criterion, JudgedElement};
use tapml_migrate::{RegionOutcome, Regions, WrongRegion, segments, smallest_failing};

/// Regions tried so far.
///
/// Each trial builds and runs a model in the other runtime, which is slow; `most` bounds the whole search.
struct Search {
    /// Regions that were run so far.
    tried: usize,
    /// Regions that may be run in all.
    most: usize,
    /// Why regions were not run.
    refused: Option<String>,
}

/// Looks for faults between operators of others.
///
/// # Errors
///
/// A request to stop, or a target that cannot go on.
pub(crate) fn find(run: &mut DiagnosisContext<'_>) -> Result<()> {
    let start = Instant::now();
    if !run.target.runs_regions() {
        return Ok(());
    }
    let barred = |id: NodeId| run.barred.contains(run.name(id));
    // Segments are runs of nodes in graph order without faulty ones. Parts of a failing one are appended behind them.
    let mut open: VecDeque<BTreeSet<NodeId>> = segments(run.suite.graph(), &|id| !barred(id)).into();
    run.progress.stage("run regions as one model", open.len() as u64);
    let (all, runs) = (run.suite.frames().len(), with_regions(run, |regions, _| Ok(regions.runs()))?);
    if runs < all {
        run.notes.push(format!("nodes ran as one model with the first {runs} of {all} recorded runs"));
    }
    // Each fault is made small here, which takes many trials.
    let mut search = Search { tried: 0, most: 4 * run.options.trials, refused: None };
    while let Some(nodes) = open.pop_front() {
        run.stop.check()?;
        if search.tried >= search.most {
            let text = format!("{} regions were tried; those that are left were not", search.tried);
            skip(run, text);
            break;
        }
        if let Some(failing) = smallest(run, &mut search, &nodes)? {
            let last = failing.last().copied();
            let fault = fault(run, &mut search, &failing)?;
            run.progress.note(&format!("between {}: {}", fault.op, fault.cause));
            merge(run, fault);
            // Further faults lie in what is left when one of these nodes is taken out.
            // The last node of the failing set is the one left out: without it that set does not fail.
            let before: BTreeSet<NodeId> = nodes.iter().copied().filter(|id| Some(*id) < last).collect();
            let behind: BTreeSet<NodeId> = nodes.iter().copied().filter(|id| Some(*id) > last).collect();
            open.extend([before, behind].into_iter().filter(|part| !part.is_empty()));
        }
        run.progress.advance(1);
    }
    if let Some(reason) = search.refused {
        skip(run, reason);
    }
    run.add_time("run regions as one model", start);
    Ok(())
}

/// Does something with the regions of the diagnosed model, and its target.
fn with_regions<T>(
    run: &mut DiagnosisContext<'_>,
    work: impl FnOnce(&Regions<'_>, &mut dyn tapml_exec::Platform) -> Result<T>,
) -> Result<T> {
    let choices = &run.choices;
    let precision = |id: NodeId, symbols: &Symbols| choices.declared_precision(id, symbols);
    let regions = Regions { suite: run.suite, model: run.model, oracles: run.oracles, precision: &precision };
    work(&regions, run.target)
}

/// Notes that regions were not, or not all, examined.
fn skip(run: &mut DiagnosisContext<'_>, reason: String) {
    run.skipped.push(SkippedNode { node: "regions of several nodes".into(), reason });
}

/// The fewest of these nodes that fail together; `None` if all of them pass, or do not run as one model.
fn smallest(
    run: &mut DiagnosisContext<'_>,
    search: &mut Search,
    nodes: &BTreeSet<NodeId>,
) -> Result<Option<BTreeSet<NodeId>>> {
    if !check(run, search, nodes)?.fails() {
        return Ok(None);
    }
    let mut fails = |nodes: &BTreeSet<NodeId>| Ok(check(run, search, nodes)?.fails());
    smallest_failing(nodes.clone(), &mut fails).map(Some)
}

/// Runs a region once. The first refusal is kept as the reason for the report.
fn check(
    run: &mut DiagnosisContext<'_>,
    search: &mut Search,
    nodes: &BTreeSet<NodeId>,
) -> Result<RegionOutcome> {
    search.tried += 1;
    let stop = run.stop;
    let outcome = with_regions(run, |regions, target| regions.check(target, nodes, stop))?;
    if let RegionOutcome::NotServed(error) = &outcome {
        search.refused.get_or_insert(error.to_string());
    }
    Ok(outcome)
}

/// The fault of a smallest region. It is run once more, to see what is wrong.
fn fault(run: &mut DiagnosisContext<'_>, search: &mut Search, nodes: &BTreeSet<NodeId>) -> Result<Fault> {
    let graph = run.suite.graph();
    let ids: Vec<NodeId> = nodes.iter().copied().collect();
    let kinds: Vec<&str> = ids.iter().map(|&id| graph.node(id).op.name()).collect();
    let outcome = check(run, search, nodes)?;
    let frame = match &outcome {
        RegionOutcome::Wrong(wrong) => wrong.judgement.frame,
        _ => 0,
    };
    let node = ids.last().copied().unwrap_or(NodeId(0));
    let mut fault =
        Fault::of_nodes(run.facts(), FaultKind::Between, &ids, run.suite.case_id(Case { frame, node }));
    fault.op = kinds.join("+");
    fault.rule = (kinds.len() > 1).then(|| format!("{} run in one model", chain(run, nodes)));
    fault.criterion = Criterion::Element.name().into();
    let suite = run.suite.path().display().to_string();
    fault.reproduce = Some(run.reduction(&suite).of_nodes(&fault.nodes));
    match outcome {
        RegionOutcome::Wrong(wrong) => explain_wrong(run, &wrong, &mut fault)?,
        RegionOutcome::Failed(error) => {
            fault.cause = Cause::Crash.name().into();
            (fault.certain, fault.fit) = (true, 1.0);
            fault.criterion = error.kind().name().into();
            fault.evidence =
                format!("each of these nodes runs alone, but not all of them as one model: {error}");
        }
        // The same region failed a moment ago, so the result depends on chance.
        RegionOutcome::Passed { .. } | RegionOutcome::NotServed(_) => {
            fault.cause = Cause::Race.name().into();
            fault.evidence =
                "these nodes failed when they ran as one model, and passed when they ran again".into();
        }
    }
    Ok(fault)
}

/// Adds what is wrong, and why, if a changed node explains it.
fn explain_wrong(run: &DiagnosisContext<'_>, wrong: &WrongRegion, fault: &mut Fault) -> Result<()> {
    let judged = &wrong.judgement;
    fault.worst_ratio = judged.ratio;
    fault.element = Some(JudgedElement {
        output: 0,
        index: judged.element,
        exact: judged.exact,
        observed: judged.observed,
        allowed: judged.allowed,
    });
    // A region of one node was optimised as a model, while single calls are run without that.
    let alone = if wrong.region.nodes.len() > 1 {
        "each of these nodes is right alone"
    } else {
        "this node is right in a model that is not optimised"
    };
    fault.evidence = format!("{alone}; run as one model, {judged}");
    let Some(found) = explain_region(wrong, run.oracles)? else { return Ok(()) };
    let explanation = found.explanation;
    fault.evidence += &format!("; in `{}` ({}): {}", found.node, found.op, explanation.evidence);
    fault.cause = explanation.cause.name().into();
    (fault.certain, fault.fit) = (explanation.certain, explanation.fit);
    (fault.tested, fault.error_map) = (explanation.tested, Some(explanation.error_map));
    if let Some(rule) = explanation.rule.filter(|rule| !rule.is_empty()) {
        // Both conditions hold: which nodes run together, and what the call is like.
        fault.rule = Some(match fault.rule.take() {
            Some(chain) => format!("{chain}, and of `{}` {rule}", found.node),
            None => rule,
        });
    }
    Ok(())
}

/// The nodes as a reader of a graph sees them: each with the one of them that it follows.
fn chain(run: &DiagnosisContext<'_>, nodes: &BTreeSet<NodeId>) -> String {
    let graph = run.suite.graph();
    let short = |id: NodeId| match &graph.node(id).op {
        Op::Foreign(op) => op.name(),
        op => op.name(),
    };
    let follows = |id: NodeId| {
        let inputs = &graph.node(id).inputs;
        let maker =
            nodes.iter().find(|&&other| graph.node(other).outputs.iter().any(|out| inputs.contains(out)));
        match maker {
            Some(&maker) => format!("{} behind {}", short(id), short(maker)),
            None => short(id).to_string(),
        }
    };
    nodes.iter().map(|&id| follows(id)).collect::<Vec<_>>().join(", ")
}

/// Adds a fault; the same operators with the same cause are one fault.
fn merge(run: &mut DiagnosisContext<'_>, fault: Fault) {
    let same = |known: &&mut Fault| {
        known.kind == FaultKind::Between
            && (&known.op, &known.cause, &known.rule) == (&fault.op, &fault.cause, &fault.rule)
    };
    match run.faults.iter_mut().find(same) {
        Some(known) => {
            known.nodes.extend(fault.nodes);
            known.worst_ratio = known.worst_ratio.max(fault.worst_ratio);
        }
        None => run.faults.push(fault),
    }
}
