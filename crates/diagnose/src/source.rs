//! Calls of which the source, not the target, departs from the exact result.
//!
//! Such a fault blames the source; it does not make the target fail.

use crate::context::DiagnosisContext;
use crate::explain;
use crate::group::{Group, describe};
use crate::report::{Blames, Fault};
use tapml_cause::Cause;
use tapml_exec::Phase;
use tapml_graph::Result;
use tapml_migrate::CaseResult;

/// One fault of the source if it departs from the exact result of a call of this operator by more than rounding explains.
///
/// Each operator gets one fault, with its worst call.
///
/// # Errors
///
/// What the suite or the oracles give.
pub(crate) fn of_checked(
    run: &mut DiagnosisContext<'_>,
    op: &str,
    results: &[CaseResult],
) -> Result<Option<Fault>> {
    let ratio = |result: &CaseResult| result.outcome.as_ref().ok()?.source_ratio.filter(|ratio| *ratio > 1.0);
    let departing: Vec<&CaseResult> = results.iter().filter(|result| ratio(result).is_some()).collect();
    let Some(worst) =
        departing.iter().max_by(|a, b| ratio(a).unwrap_or(0.0).total_cmp(&ratio(b).unwrap_or(0.0)))
    else {
        return Ok(None);
    };
    let (call, recorded) = run.suite.call(worst.case, run.model)?;
    let exact = run.oracles.exact_outputs(worst.case, || Ok(&call))?;
    let precision = run.choices.precision(worst.case.node, &call.symbols)?;
    let types = run.suite.graph().input_types(run.suite.graph().node(worst.case.node));
    // Where the source has no kernel to name, its word stands for it.
    let kernel = run.source.kernel_for(&call.op, &types, Phase::of_run(&call.symbols));
    let kernel = kernel.map_or_else(|_| run.source.word().to_string(), |choice| choice.name);
    // The group is empty, because its verdicts are of the target.
    let mut fault = describe(run, op, &Group { kernel, results: Vec::new() });
    let mut nodes: Vec<_> = departing.iter().map(|result| result.case.node).collect();
    nodes.sort();
    nodes.dedup();
    fault.nodes = nodes.into_iter().map(|node| run.name(node).to_string()).collect();
    fault.blames = Blames::Source;
    fault.cause = Cause::SourceDeparts.name().into();
    fault.first_bad_case = departing.first().map(|result| run.suite.case_id(result.case)).unwrap_or_default();
    fault.worst_case = Some(run.suite.case_id(worst.case));
    fault.worst_ratio = ratio(worst).unwrap_or(0.0);
    (fault.cases, fault.failed) = (results.len() as u64, departing.len() as u64);
    fault.evidence = format!(
        "what the source recorded departs from the exact result by {:.2e} times what rounding explains",
        fault.worst_ratio
    );
    // The recorded result is judged alone here, so that it may pass where the comparison with the target's did not.
    run.stop.check()?;
    if let Some(found) = explain::of_call(run.facts(), &call, &exact, &[recorded], precision)?
        && found.cause != Cause::Unknown
    {
        fault.evidence += &format!("; {}: {}", found.cause, found.evidence);
        (fault.certain, fault.fit, fault.rule) = (found.certain, found.fit, found.rule);
        (fault.tested, fault.error_map) = (found.tested, Some(found.error_map));
    }
    Ok(Some(fault))
}
