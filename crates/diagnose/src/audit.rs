//! Kernels that do not fail, run by the checking device: a race or an access out of bounds may do no harm in the recorded
//! calls, on this device, today.
//!
//! The checking device is the emulator, which runs the same kernels. It is slow, so calls are chosen by size and their work is bounded.

use crate::context::DiagnosisContext;
use crate::explain;
use crate::perform::look;
use crate::report::{Fault, FaultKind, LeftOut, Watched};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Instant;
use tapml_device::Finding;
use tapml_graph::{NodeId, Result, Symbol};
use tapml_migrate::estimate_work;
use tapml_migrate::report::is_defect;
use tapml_migrate::suite::Case;

/// Kernels may go other ways from so many rows, or cached positions, on: a tile or a workgroup is full, keys are split.
const BOUNDS: [u64; 7] = [1, 16, 32, 64, 128, 256, 512];
/// Multiplications that the checking device may take in all, about a quarter of a minute of two cores.
/// The estimate is [`estimate_work`]'s. A bound on time would make reports depend on the machine.
const WORK: u64 = 600_000_000;
/// Kernels that are named in a note.
/// All of them are in [`Watched::left_out`].
const NAMED: usize = 6;

/// Runs, for every kernel at every set of types, a call of one row, one of a few, and the smallest recorded ones of more
/// rows and more cached positions than each of [`BOUNDS`]. Calls beyond [`WORK`] are left out, and named.
///
/// # Errors
///
/// A request to stop, or a checking device that cannot go on. What a call does is a fault, not an error.
pub(crate) fn find(run: &mut DiagnosisContext<'_>) -> Result<()> {
    if !run.options.audit {
        return Ok(());
    }
    if run.checker.is_none() {
        run.notes.push("no kernel was watched at work: this build has no emulator".into());
        return Ok(());
    }
    let start = Instant::now();
    let cases = cases(run);
    run.progress.stage("watch kernels at work", cases.len() as u64);
    let (mut watched, mut left) = (Watched::default(), WORK);
    for case in cases {
        run.stop.check()?;
        run.progress.advance(1);
        // Kernels that fail were run by the checking device when they were explained; other barred nodes did not run.
        if run.barred.contains(run.name(case.node)) {
            continue;
        }
        let work = estimate_work(run.suite, case);
        let missed = if work <= left {
            left -= work;
            watch(run, case)?
        } else {
            Some("it would take the checking device too long".into())
        };
        match missed {
            None => watched.calls += 1,
            Some(reason) => watched.left_out.push(left_out(run, case, reason)),
        }
    }
    run.notes.extend(note(&watched, run.suite.path()));
    run.watched = Some(watched);
    run.add_time("watch kernels at work", start);
    Ok(())
}

/// Runs one call; says why if it could not be run. What it shows is added to the faults.
fn watch(run: &mut DiagnosisContext<'_>, case: Case) -> Result<Option<String>> {
    let (call, _) = run.suite.call(case, run.model)?;
    let seen = look(run, &call, case.node)?;
    let defects: Vec<Finding> = seen.findings.into_iter().filter(is_defect).collect();
    if !defects.is_empty() {
        let fault = fault(run, case, defects);
        run.progress.note(&format!("{}: {}", fault.op, fault.cause));
        // The nodes' later cases are passed over, since they would show the same defect.
        run.barred.extend(fault.nodes.iter().cloned());
        add(run, fault);
    }
    Ok(seen.missed)
}

/// The report's entry for a call that the checking device did not run.
fn left_out(run: &DiagnosisContext<'_>, case: Case, reason: String) -> LeftOut {
    let kernel = run.choices.of_case(run.suite, case).map(|c| c.name.clone()).unwrap_or_default();
    LeftOut { kernel, case: run.suite.case_id(case), rows: size(run, case, Symbol::N), reason }
}

/// What was left out, in one sentence.
fn note(watched: &Watched, suite: &std::path::Path) -> Option<String> {
    let count = watched.left_out.len();
    let mut kernels: Vec<&str> = watched.left_out.iter().map(|l| l.kernel.as_str()).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let first = watched.left_out.first()?;
    let more = kernels.len().saturating_sub(NAMED);
    let mut names = kernels.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        names += &format!(" and {more} more kernels");
    }
    Some(format!(
        "races and stray accesses were looked for in {} calls; {count} more were left out ({names}; `{}`: {}); `tapml check {} \
         --target 'emulator?check=all'` runs every recorded call",
        watched.calls,
        first.case,
        first.reason,
        crate::shell::path(&suite.display().to_string())
    ))
}

/// One line of one kernel is one fault, however many sets of types and constants it serves.
fn add(run: &mut DiagnosisContext<'_>, fault: Fault) {
    let place = |f: &Fault| f.findings.first().map(|d| (d.kind, d.line));
    let same = |old: &&mut Fault| {
        old.kind == fault.kind && old.kernel == fault.kernel && place(old) == place(&fault)
    };
    match run.faults.iter_mut().find(same) {
        Some(old) => old.nodes.extend(fault.nodes),
        None => run.faults.push(fault),
    }
}

/// The calls to run, small ones first.
/// At most one call of each kernel hash and each pair of size classes.
fn cases(run: &DiagnosisContext<'_>) -> Vec<Case> {
    let sizes = |case: &Case| {
        let (rows, cached) = (size(run, *case, Symbol::N), size(run, *case, Symbol::P));
        let sees_cache = !run.suite.graph().node(case.node).op.row_wise();
        // Operators that work row by row do not see cached positions, so these make no class of their own.
        (rows, if sees_cache { cached } else { 0 })
    };
    let mut all: Vec<Case> = run.suite.cases().collect();
    all.sort_by_cached_key(|case| {
        let (rows, cached) = sizes(case);
        // Of a few rows the most, where a workgroup is nearly full; of many the fewest, which take least.
        let few = if class(rows) == 1 { Reverse(rows) } else { Reverse(0) };
        // Frame and node at the end make the order total, so that reports are the same each time.
        (class(rows), class(cached), few, rows, cached, case.frame, case.node)
    });
    let mut seen: HashSet<(String, usize, usize)> = HashSet::new();
    let fresh = |case: &Case| {
        let (rows, cached) = sizes(case);
        // A hash stands for text, constants and types: equal ones run the same code.
        let hash = run.choices.kernel_at(case.node, run.suite.phase(*case)).ok().map(|c| c.hash.clone());
        hash.is_some_and(|hash| seen.insert((hash, class(rows), class(cached))))
    };
    all.into_iter().filter(fresh).collect()
}

/// How many of [`BOUNDS`] a size exceeds.
fn class(size: u64) -> usize {
    BOUNDS.iter().filter(|&&bound| size > bound).count()
}

/// The size of a call along a symbol. Without the symbol it has one row, or no cached position.
fn size(run: &DiagnosisContext<'_>, case: Case, symbol: Symbol) -> u64 {
    let symbols = &run.suite.frames()[case.frame].symbols;
    symbols.get(symbol).unwrap_or(u64::from(symbol == Symbol::N))
}

/// A fault that the checking device saw. It concerns all nodes that run the same code.
fn fault(run: &DiagnosisContext<'_>, case: Case, defects: Vec<Finding>) -> Fault {
    let phase = run.suite.phase(case);
    let hash = run.choices.kernel_at(case.node, phase).ok().map(|c| c.hash.clone());
    let nodes = (0..run.suite.graph().nodes().len() as u32).map(NodeId);
    let same = |id: &NodeId| run.choices.kernel_at(*id, phase).ok().map(|c| c.hash.clone()) == hash;
    let nodes: Vec<NodeId> = nodes.filter(same).collect();
    let mut fault = Fault::of_nodes(run.facts(), FaultKind::Operator, &nodes, run.suite.case_id(case));
    fault.cause = explain::finding_cause(defects[0].kind).name().into();
    // The device saw the defect itself, whatever the values are.
    (fault.certain, fault.fit) = (true, 1.0);
    fault.evidence = format!("every recorded call is right on this platform, but {}", defects[0]);
    fault.criterion = defects[0].kind.name().into();
    fault.findings = defects;
    fault
}
