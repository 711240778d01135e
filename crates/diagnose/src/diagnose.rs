//! The order of a diagnosis: operators alone, kernels under a checking device, harm, then the whole model.
//!
//! The order matters. Faulty operators go first, because their nodes run on the source while the whole model is examined. The checking
//! device comes second, since its findings bar nodes too.

use crate::context::{DiagnoseOptions, DiagnosisContext, Subject};
use crate::report::{Blames, Diagnosis, SCHEMA};
use crate::{audit, between, not_run, operators, regions};
use std::collections::BTreeSet;
use std::time::Instant;
use tapml_graph::{Op, Result};
use tapml_migrate::{Progress, Stop, composed_suites};

/// Finds every fault of the target. Wrong values are faults in the result; an error means that there could be no diagnosis:
/// the device was lost, memory ran out, [`tapml_graph::ErrorKind::Interrupted`] after a request to stop.
///
/// # Errors
///
/// Only what stops a diagnosis. A target that refuses an operator is reported in [`Diagnosis::not_run`], one that crashes in a fault.
pub fn diagnose(
    subject: Subject<'_>,
    options: &DiagnoseOptions,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Diagnosis> {
    let start = Instant::now();
    // Lowering puts in operators that the recorded graph does not have; their calls are composed of recorded values.
    let composed = composed_suites(subject.suite, &*subject.target)?;
    // Exact results are kept per suite, each within the same bound of memory as those of the suite itself.
    let exact = composed.each_ref().map(|_| subject.oracles.for_view(subject.oracles.budget()));
    let mut run = DiagnosisContext::new(subject, *options, progress, stop)?;
    operators::find(&mut run)?;
    for (suite, oracles) in composed.iter().zip(&exact) {
        operators::find_lowered(&mut run, suite, oracles)?;
    }
    audit::find(&mut run)?;
    let foreign = suite_is_foreign(&run);
    let whole = if !options.between {
        None
    // A runtime of others does not let the values of single nodes be seen, so regions are compared at their borders.
    } else if foreign {
        regions::find(&mut run)?;
        None
    } else {
        between::find(&mut run)?
    };
    let manifest = run.suite.manifest();
    let plain = run.suite.graph().op_kinds().into_iter().map(|(op, _)| op);
    let lowered: BTreeSet<&str> = run.lowered.iter().map(|(op, _)| *op).collect();
    let ops = plain.chain(lowered);
    // After all stages, because lowered operators may have used a kernel that no plain node does.
    run.not_run.extend(not_run::unused_kernels(&run, &run.not_run));
    // A fault's operators may be several, joined by `+`.
    let clean = |op: &&str| {
        !run.faults.iter().any(|f| f.blames == Blames::Target && f.op.split('+').any(|o| o == *op))
    };
    let checked = |op: &&str| run.checked.contains(*op) && run.not_run.iter().all(|n| n.op != *op);
    Ok(Diagnosis {
        schema: SCHEMA,
        model: manifest.model.clone(),
        source: run.source.describe(),
        target: run.target.describe(),
        suite: run.suite.path().display().to_string(),
        clean_ops: ops.filter(clean).filter(checked).map(str::to_string).collect(),
        faults: run.faults,
        not_run: run.not_run,
        skipped: run.skipped,
        notes: run.notes,
        watched: run.watched,
        calls: run.calls,
        whole,
        seconds: start.elapsed().as_secs_f64(),
        stages: run.stages,
    })
}

/// Whether the operators are of others.
/// One such operator is enough: the graph then runs on a runtime of others.
fn suite_is_foreign(run: &DiagnosisContext<'_>) -> bool {
    run.suite.graph().nodes().iter().any(|node| matches!(node.op, Op::Foreign(_)))
}
