//! Kernels that are right on every recorded call and wrong on one made of recorded values, for sizes that no run had.
//!
//! The calls and their verdicts come from the check of operators; this file makes faults of those that fail.

use crate::context::DiagnosisContext;
use crate::group::same_code;
use crate::perform::{conclude, look};
use crate::report::{Fault, FaultKind};
use crate::{explain, functions, inner};
use tapml_cause::{Cause, Explanation};
use tapml_exec::Call;
use tapml_graph::{NodeId, Result};
use tapml_migrate::{MadeCall, MadeFailure};

/// Most further failing calls that a cause has to explain, the largest first.
/// Larger calls have fewer explanations that fit by chance.
const OTHERS: usize = 2;

/// One fault for each kernel, explained by the first of its made calls that was judged.
///
/// # Errors
///
/// A request to stop, or a lost device.
pub(crate) fn find(run: &mut DiagnosisContext<'_>, failures: Vec<MadeFailure>) -> Result<()> {
    let mut kernels: Vec<(String, Vec<MadeFailure>)> = Vec::new();
    for failure in failures {
        match kernels.iter_mut().find(|(kernel, _)| *kernel == failure.made.kernel) {
            Some((_, known)) => known.push(failure),
            None => kernels.push((failure.made.kernel.clone(), vec![failure])),
        }
    }
    for (kernel, failures) in kernels {
        run.stop.check()?;
        // What a probe of the range has shown is the same fault, and says more.
        if let Some(known) = run.faults.iter_mut().find(|fault| fault.kernel == kernel) {
            known.evidence += &format!("; calls made of recorded values fail, too: {}", regimes(&failures));
            continue;
        }
        let fault = fault(run, &failures)?;
        run.progress.note(&format!("{}: {}", fault.op, fault.cause));
        run.barred.extend(fault.nodes.iter().cloned());
        run.faults.push(fault);
    }
    Ok(())
}

/// The fault of one kernel. Its nodes are all that run the same code.
fn fault(run: &mut DiagnosisContext<'_>, failures: &[MadeFailure]) -> Result<Fault> {
    let names: Vec<String> = failures.iter().map(|f| run.name(f.made.case.node).to_string()).collect();
    let nodes = same_code(run, &names);
    let ids: Vec<NodeId> = nodes.iter().filter_map(|name| run.suite.graph().find_node(name)).collect();
    // A call with values says more than one that did not run.
    let told = failures.iter().find(|f| f.outcome.is_ok()).unwrap_or(&failures[0]);
    let mut fault = Fault::of_nodes(run.facts(), FaultKind::Operator, &ids, told.made.id());
    // The other phase of these nodes may run another kernel.
    fault.kernel = told.made.kernel.clone();
    fault.failed = failures.len() as u64;
    fault.worst_ratio = failures.iter().map(MadeFailure::ratio).fold(0.0, f64::max);
    fault.evidence = format!(
        "every recorded call is right on this platform, but {} made of recorded values for sizes that no run had is not: {}",
        if failures.len() == 1 { "a call" } else { "calls" },
        regimes(failures)
    );
    match &told.outcome {
        Ok(judged) => {
            fault.criterion = judged.criterion.name().into();
            (fault.element, fault.pattern) =
                (Some(judged.worst), judged.pattern.as_ref().map(|p| p.text.clone()).unwrap_or_default());
            explain_calls(run, failures, &told.made, &mut fault)?;
        }
        Err(error) => {
            fault.criterion = error.kind().name().into();
            (fault.cause, fault.certain, fault.fit) = (Cause::Crash.name().into(), true, 1.0);
            fault.evidence += &format!("; the kernel could not be built or run: {error}");
        }
    }
    Ok(fault)
}

/// What the calls were made for, each once.
fn regimes(failures: &[MadeFailure]) -> String {
    let mut all: Vec<String> = failures.iter().map(|f| f.made.purpose.to_string()).collect();
    all.dedup();
    all.join("; ")
}

/// Adds the cause of a made call that was judged. The smallest sizes may look like something else by chance, so that a
/// cause has to explain the largest of the failing calls, too.
fn explain_calls(
    run: &mut DiagnosisContext<'_>,
    failures: &[MadeFailure],
    made: &MadeCall,
    fault: &mut Fault,
) -> Result<()> {
    let call = &made.call;
    fault.findings = look(run, call, made.case.node)?.findings;
    let judged = failures.iter().filter(|failure| failure.outcome.is_ok()).map(|failure| &failure.made);
    let mut others: Vec<&MadeCall> = judged.filter(|other| other.id() != made.id()).collect();
    let elements = |made: &MadeCall| made.call.inputs.iter().map(|input| input.len()).sum::<usize>();
    // The largest first.
    others.sort_by_key(|made| std::cmp::Reverse(elements(made)));
    others.truncate(OTHERS);
    if let Some(mut found) = cause(run, made)? {
        for other in &others {
            if found.cause != Cause::Unknown
                && let Some(of_other) = cause(run, other)?
            {
                found = explain::held_against(found, &of_other, &other.id());
            }
        }
        (fault.cause, fault.certain) = (found.cause.name().into(), found.certain);
        (fault.fit, fault.tested) = (found.fit, found.tested);
        fault.evidence += &format!("; {}", found.evidence);
        fault.error_map = Some(found.error_map);
    }
    // A certain cause needs no other explanation beside it.
    if let Some(poor) = functions::poor(run, made.case.node)?.filter(|_| !fault.certain) {
        fault.evidence += &format!("; {poor}");
    }
    let all = std::iter::once(made).chain(others);
    let calls: Vec<(String, &Call)> = all.map(|made| (made.id(), &made.call)).collect();
    inner::describe_inner(run, &calls, made.case.node, fault)
}

/// The cause of one made call. It is no case of the suite, so the oracles evaluate the call itself.
fn cause(run: &mut DiagnosisContext<'_>, made: &MadeCall) -> Result<Option<Explanation>> {
    conclude(run, |facts, outcomes| explain::explain_new(facts, &made.call, made.case.node, outcomes))
}
