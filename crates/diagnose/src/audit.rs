//! Kernels that do not fail, run once each by the checking device: a race or an access out of bounds may do no harm in the
//! recorded calls, on this device, today.

use crate::diagnose::Run;
use crate::explain;
use crate::report::{Fault, FaultKind};
use std::collections::HashSet;
use std::time::Instant;
use tapml_device::Finding;
use tapml_graph::{NodeId, Result, Symbol};
use tapml_migrate::report::is_defect;
use tapml_migrate::suite::Case;

/// Rows of a call that the checking device runs; larger ones take it long and show no more.
const ROWS: u64 = 16;

/// Runs, for every kernel at every set of types, its first call of one row and its first of the most rows up to [`ROWS`].
pub(crate) fn find(run: &mut Run<'_>) -> Result<()> {
    if !run.options.audit || run.checker.is_none() {
        return Ok(());
    }
    let start = Instant::now();
    let cases = cases(run);
    run.progress.stage("watch kernels at work", cases.len() as u64);
    for case in cases {
        run.stop.check()?;
        run.progress.advance(1);
        if run.barred.contains(run.name(case.node)) {
            continue;
        }
        let (call, _) = run.suite.call(case, run.model)?;
        let found = explain::findings(run, &call, case.node)?;
        let defects: Vec<Finding> = found.into_iter().filter(is_defect).collect();
        if !defects.is_empty() {
            let fault = fault(run, case, defects);
            run.progress.note(&format!("{}: {}", fault.op, fault.cause));
            run.barred.extend(fault.nodes.iter().cloned());
            add(run, fault);
        }
    }
    run.timed("watch kernels at work", start);
    Ok(())
}

/// One line of one kernel is one fault, however many sets of types and constants it serves.
fn add(run: &mut Run<'_>, fault: Fault) {
    let place = |f: &Fault| f.findings.first().map(|d| (d.kind, d.line));
    let same = |old: &&mut Fault| {
        old.kind == fault.kind && old.kernel == fault.kernel && place(old) == place(&fault)
    };
    match run.faults.iter_mut().find(same) {
        Some(old) => old.nodes.extend(fault.nodes),
        None => run.faults.push(fault),
    }
}

fn cases(run: &Run<'_>) -> Vec<Case> {
    let mut seen: HashSet<(&str, bool)> = HashSet::new();
    let rows = |case: &Case| run.suite.frames()[case.frame].symbols.get(Symbol::N).unwrap_or(1);
    // Kernels may treat few rows in another way than many: one row, and as many as there are.
    let mut all: Vec<Case> = run.suite.cases().filter(|case| rows(case) <= ROWS).collect();
    all.sort_by_key(|case| (std::cmp::Reverse(rows(case)), case.frame, case.node));
    let fresh = |case: &Case| {
        let hash = run.choices.get(case.node).ok().map(|c| c.hash.as_str());
        hash.is_some_and(|hash| seen.insert((hash, rows(case) > 1)))
    };
    all.into_iter().filter(fresh).collect()
}

fn fault(run: &Run<'_>, case: Case, defects: Vec<Finding>) -> Fault {
    let hash = run.choices.get(case.node).ok().map(|c| c.hash.clone());
    let nodes = (0..run.suite.graph().nodes().len() as u32).map(NodeId);
    let same = |id: &NodeId| run.choices.get(*id).ok().map(|c| c.hash.clone()) == hash;
    let nodes: Vec<NodeId> = nodes.filter(same).collect();
    let mut fault = Fault::between(run, &nodes, run.suite.case_id(case));
    fault.kind = FaultKind::Operator;
    fault.cause = explain::seen(defects[0].kind).name().into();
    (fault.certain, fault.fit) = (true, 1.0);
    fault.evidence = format!("every recorded call is right on this platform, but {}", defects[0]);
    fault.criterion = defects[0].kind.name().into();
    fault.findings = defects;
    fault
}
