//! Faults between operators in someone else's runtime: the nodes that are right alone run as one model, which the runtime fuses,
//! lays out and plans as it does whole models, and are compared at the borders. What fails is made small.

use crate::diagnose::Run;
use crate::report::{Fault, FaultKind};
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;
use tapml_cause::Cause;
use tapml_graph::{Error, ErrorKind, NodeId, Op, Result, Symbols};
use tapml_migrate::report::SkippedNode;
use tapml_migrate::suite::Case;
use tapml_migrate::verdict::{Criterion, Element};
use tapml_migrate::{RegionJudgement, Regions, is_not_served, segments, smallest_failing};

/// Runs of the suite with which a region is checked.
const FRAMES: usize = 2;

/// How a region fails.
enum Failure {
    /// With wrong values.
    Values(RegionJudgement),
    /// It does not run.
    Error(Error),
}

/// Regions tried so far.
struct Search {
    frames: usize,
    tried: usize,
    most: usize,
    /// Why regions were not run.
    refused: Option<String>,
}

/// Looks for faults between operators of others.
pub(crate) fn find(run: &mut Run<'_>) -> Result<()> {
    let start = Instant::now();
    let barred = |id: NodeId| run.barred.contains(run.name(id));
    let mut open: VecDeque<BTreeSet<NodeId>> = segments(run.suite.graph(), &|id| !barred(id)).into();
    run.progress.stage("run regions as one model", open.len() as u64);
    let all = run.suite.frames().len();
    let frames = all.min(FRAMES);
    if frames < all {
        run.notes.push(format!("nodes ran as one model with the first {frames} of {all} recorded runs"));
    }
    let mut search = Search { frames, tried: 0, most: 4 * run.options.trials, refused: None };
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
            let before: BTreeSet<NodeId> = nodes.iter().copied().filter(|id| Some(*id) < last).collect();
            let behind: BTreeSet<NodeId> = nodes.iter().copied().filter(|id| Some(*id) > last).collect();
            open.extend([before, behind].into_iter().filter(|part| !part.is_empty()));
        }
        run.progress.advance(1);
    }
    if let Some(reason) = search.refused {
        skip(run, reason);
    }
    run.timed("run regions as one model", start);
    Ok(())
}

fn skip(run: &mut Run<'_>, reason: String) {
    run.skipped.push(SkippedNode { node: "regions of several nodes".into(), reason });
}

/// The fewest of these nodes that fail together; `None` if all of them pass, or do not run as one model.
fn smallest(
    run: &mut Run<'_>,
    search: &mut Search,
    nodes: &BTreeSet<NodeId>,
) -> Result<Option<BTreeSet<NodeId>>> {
    match fails(run, search, nodes)? {
        None => Ok(None),
        Some(_) => {
            let mut fails = |nodes: &BTreeSet<NodeId>| Ok(fails(run, search, nodes)?.is_some());
            smallest_failing(nodes.clone(), &mut fails).map(Some)
        }
    }
}

/// How a region fails with the recorded values of any of a few runs.
fn fails(run: &mut Run<'_>, search: &mut Search, nodes: &BTreeSet<NodeId>) -> Result<Option<Failure>> {
    let (choices, model, suite, oracles) = (&run.choices, run.model, run.suite, run.oracles);
    let precision = |id: NodeId, symbols: &Symbols| choices.declared(id, symbols);
    let regions = Regions { suite, model, oracles, precision: &precision };
    for frame in 0..search.frames {
        run.stop.check()?;
        search.tried += 1;
        match regions.check(run.target, nodes, frame) {
            Ok(judged) if judged.passed() => {}
            Ok(judged) => return Ok(Some(Failure::Values(judged))),
            Err(e) if is_not_served(&e) => {
                search.refused.get_or_insert(e.to_string());
                return Ok(None);
            }
            Err(e) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted | ErrorKind::Bug) => {
                return Err(e);
            }
            Err(e) => return Ok(Some(Failure::Error(e))),
        }
    }
    Ok(None)
}

fn fault(run: &mut Run<'_>, search: &mut Search, nodes: &BTreeSet<NodeId>) -> Result<Fault> {
    let graph = run.suite.graph();
    let ids: Vec<NodeId> = nodes.iter().copied().collect();
    let kinds: Vec<&str> = ids.iter().map(|&id| graph.node(id).op.name()).collect();
    let failure = fails(run, search, nodes)?;
    let frame = match &failure {
        Some(Failure::Values(judged)) => judged.frame,
        _ => 0,
    };
    let node = ids.last().copied().unwrap_or(NodeId(0));
    let mut fault = Fault::between(run, &ids, run.suite.case_id(Case { frame, node }));
    fault.op = kinds.join("+");
    fault.rule = (kinds.len() > 1).then(|| format!("{} run in one model", chain(run, nodes)));
    fault.criterion = Criterion::Element.name().into();
    match failure {
        Some(Failure::Values(judged)) => {
            fault.worst_ratio = judged.ratio;
            fault.element = Some(Element {
                output: 0,
                index: judged.element,
                exact: judged.exact,
                observed: judged.observed,
                allowed: judged.allowed,
            });
            let alone = if ids.len() > 1 {
                "each of these nodes is right alone"
            } else {
                "this node is right in a model that is not optimised"
            };
            fault.evidence = format!(
                "{alone}; run as one model, `{}` departs at element {} by {:.2e} times what the allowed errors of the nodes \
                 explain",
                judged.value, judged.element, judged.ratio
            );
        }
        Some(Failure::Error(error)) => {
            fault.cause = Cause::Crash.name().into();
            (fault.certain, fault.fit) = (true, 1.0);
            fault.criterion = error.kind().name().into();
            fault.evidence =
                format!("each of these nodes runs alone, but not all of them as one model: {error}");
        }
        None => {
            fault.cause = Cause::Race.name().into();
            fault.evidence =
                "these nodes failed when they ran as one model, and passed when they ran again".into();
        }
    }
    Ok(fault)
}

/// The nodes as a reader of a graph sees them: each with the one of them that it follows.
fn chain(run: &Run<'_>, nodes: &BTreeSet<NodeId>) -> String {
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
fn merge(run: &mut Run<'_>, fault: Fault) {
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
