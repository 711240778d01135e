//! Faults that no operator shows alone: the whole model on the target, as it is deployed, again and again, with poisoned
//! memory, and in other steps. What departs is located in the values of single nodes or, where these cannot be seen or say
//! nothing, by moving nodes from one platform to the other.
//!
//! Files of each step use those of the steps before alone:
//!
//! * a run, and the values that its nodes gave: `runs`, `hybrid`, `traced`;
//! * what in it is not as it must be, as data: `scan`, `scene`, `departure`;
//! * what explains that, by the outcomes of single calls: `substituted`, `why`, `group`, `program`, `faults`;
//! * which further runs lead to the place: `bisect`, `probe`, `locate`, `masked`.

mod bisect;
mod departure;
#[cfg(test)]
mod explain_tests;
mod faults;
mod group;
mod hybrid;
mod locate;
mod masked;
mod probe;
mod program;
mod runs;
mod scan;
mod scene;
mod substituted;
mod traced;
mod why;

use crate::context::DiagnosisContext;
use crate::report::{Fault, FaultKind};
use faults::Located;
use hybrid::target_nodes;
use probe::ProbeRound;
use std::time::Instant;
use tapml_cause::Cause;
use tapml_graph::{Error, ErrorKind, Result};
use tapml_migrate::ModelCheck;
use tapml_migrate::report::SkippedNode;

/// After a fault was found, its nodes go to the source and the rest is examined again, so many times at most.
/// Each round runs the whole model several times.
const ROUNDS: usize = 4;

/// What a fault of the whole program leaves open.
const HIDES: &str = "a fault of the whole program shows wherever nodes run on the target; further faults between \
                     operators can be found only when it is mended";

/// Looks for faults between operators. Gives the check of the whole model as it was found first.
/// `None` if the target did not run it.
///
/// # Errors
///
/// A lost device, a request to stop, or a defect of TapML. A target that refuses the model is noted.
pub(crate) fn find(run: &mut DiagnosisContext<'_>) -> Result<Option<ModelCheck>> {
    let mut first = None;
    // First, because rounds without the faulty nodes would hide what lies between them.
    if find_masked(run)? {
        return Ok(None);
    }
    for round in 0..ROUNDS {
        run.stop.check()?;
        if target_nodes(run).is_empty() {
            if round == 0 {
                skip(run, "no node is right on the target, so that there is no model to run there".into());
            }
            break;
        }
        let Some(found) = probe_round(run)? else { break };
        first.get_or_insert(found.check.clone());
        let located = locate_faults(run, found)?;
        // Without a new fault the next round would see the same again.
        if located.faults.is_empty() || add_all(run, located) {
            break;
        }
    }
    Ok(first)
}

/// Faults beside faulty operators; whether one of the whole program is among them.
fn find_masked(run: &mut DiagnosisContext<'_>) -> Result<bool> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let located = masked::find(run)?;
        if located.faults.is_empty() {
            break;
        }
        if add_all(run, located) {
            return Ok(true);
        }
    }
    run.add_time("run it with faulty operators", start);
    Ok(false)
}

/// Adds faults; whether one of the whole program is among them, so that there is no more to be seen.
fn add_all(run: &mut DiagnosisContext<'_>, located: Located) -> bool {
    located.faults.into_iter().for_each(|fault| add(run, fault));
    if located.whole {
        run.notes.push(HIDES.into());
    }
    located.whole
}

/// Notes why the whole model, or the rest of it, was not examined.
fn skip(run: &mut DiagnosisContext<'_>, reason: String) {
    run.skipped.push(SkippedNode { node: "the whole model".into(), reason });
}

/// One round; `None` if the target cannot run the model, which is noted.
fn probe_round(run: &mut DiagnosisContext<'_>) -> Result<Option<ProbeRound>> {
    let result = probe::round(run);
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e) => match e.kind() {
            ErrorKind::DeviceLost | ErrorKind::Interrupted | ErrorKind::Bug => Err(e),
            ErrorKind::Unsupported | ErrorKind::OutOfMemory => {
                skip(run, format!("{}: {e}", e.kind().name()));
                Ok(None)
            }
            // Any other error is what a user of the model would meet.
            _ => {
                let fault = refusal_fault(run, &e);
                add(run, fault);
                Ok(None)
            }
        },
    }
}

/// The target takes every operator alone, and not the whole model.
fn refusal_fault(run: &DiagnosisContext<'_>, error: &Error) -> Fault {
    let mut fault =
        Fault::of_nodes(run.facts(), FaultKind::Between, &target_nodes(run), "the whole model".into());
    fault.cause = Cause::Crash.name().into();
    (fault.certain, fault.fit) = (true, 1.0);
    fault.evidence = format!("every operator runs alone, but not all of them in one program: {error}");
    fault
}

/// The faults that a round shows.
fn locate_faults(run: &mut DiagnosisContext<'_>, found: ProbeRound) -> Result<Located> {
    let Some((departure, impact)) = found.departure else { return Ok(found.located) };
    let start = Instant::now();
    let mut located = locate::locate(run, &found.limits, &departure, &found.failing)?;
    run.add_time("locate what departs", start);
    // The run departs by all of its faults together, so that each gets the harm of the run.
    for fault in &mut located.faults {
        fault.output_impact = fault.output_impact.take().or(impact.clone());
    }
    Ok(located)
}

/// Adds a fault and bars its nodes from the target. A later round may find more of what an earlier one has reported.
fn add(run: &mut DiagnosisContext<'_>, fault: Fault) {
    run.barred.extend(fault.nodes.iter().cloned());
    run.progress.note(&format!("{}: {}", fault.op, fault.cause));
    let same = |f: &&mut Fault| (f.kind, &f.cause, &f.kernel) == (fault.kind, &fault.cause, &fault.kernel);
    match run.faults.iter_mut().find(same) {
        Some(known) => {
            let new: Vec<String> = fault.nodes.into_iter().filter(|n| !known.nodes.contains(n)).collect();
            known.nodes.extend(new);
        }
        None => run.faults.push(fault),
    }
}
