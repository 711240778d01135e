//! A full diagnosis of a model on a faulty device: how many of its faults are reported, and what else is.

use super::fixture::Fixture;
use super::mutation_run::platform;
use super::select::tuned_on;
use crate::device::Workbench;
use crate::mutant::Mutant;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Instant;
use tapml_diagnose::{DiagnoseOptions, Diagnosis, Fault, Subject, diagnose};
use tapml_exec::{CpuPlatform, LOGITS, Overrides, Platform};
use tapml_graph::{Error, ErrorKind, Origin, Result, Symbol, Symbols, Tensor};
use tapml_migrate::{Quiet, Stop};

/// One fault that a diagnosis reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// The operators concerned, joined by `+`.
    pub op: String,
    /// `operator` or `between`.
    pub kind: String,
    /// The cause it names.
    pub cause: String,
    /// Whether it is sure of the cause.
    pub certain: bool,
    /// Largest observed over allowed error.
    pub ratio: f64,
    /// The sentence for people.
    pub evidence: String,
    /// The fault that it stands for; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug: Option<String>,
}

/// One diagnosis of a device with some faults, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosed {
    /// The name of the case.
    pub name: String,
    /// The model.
    pub model: String,
    /// Whether constants were tuned on it.
    pub tuned_on: bool,
    /// Ids of the faults that change something here.
    pub bugs: Vec<String>,
    /// Ids of those that change nothing here and do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub equivalent: Vec<String>,
    /// What was reported.
    pub reports: Vec<Reported>,
    /// Ids of faults that no report stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
    /// Faults whose cause is among those expected.
    pub named: usize,
    /// Why there was no diagnosis, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Wall-clock time.
    pub seconds: f64,
}

impl Diagnosed {
    /// What becomes of a diagnosis by whose faults the device was lost.
    pub(super) fn device_lost(bed: &Fixture, name: &str, mutants: &[Mutant], error: &Error) -> Diagnosed {
        let bugs: Vec<String> = mutants.iter().map(|m| m.id.clone()).collect();
        Diagnosed {
            name: name.into(),
            model: bed.name.clone(),
            tuned_on: tuned_on(name),
            missed: bugs.clone(),
            bugs,
            equivalent: Vec::new(),
            reports: Vec::new(),
            named: 0,
            error: Some(error.to_string()),
            seconds: 0.0,
        }
    }

    /// Reports that stand for no fault.
    pub fn false_reports(&self) -> usize {
        self.reports.iter().filter(|r| r.bug.is_none()).count()
    }
}

/// What the whole model computes on a platform for every recorded run: its logits.
///
/// # Errors
///
/// A platform that does not load or run the model, or gives no logits.
pub fn logits(bed: &Fixture, target: &mut dyn Platform) -> Result<Vec<Tensor>> {
    let (graph, frames) = (bed.suite.graph(), bed.suite.frames());
    let most = |symbol| frames.iter().filter_map(|f| f.symbols.get(symbol)).max().unwrap_or(0);
    let mut loaded = target.load(&bed.model, &Symbols::np(most(Symbol::N), most(Symbol::P)))?;
    let mut found = Vec::with_capacity(frames.len());
    for (i, frame) in frames.iter().enumerate() {
        // A prompt begins: states of the one before are cleared.
        if frame.step == 0 {
            loaded.reset()?;
        }
        let inputs: HashMap<String, Tensor> = graph
            .inputs()
            .filter(|(_, value)| value.origin == Origin::Input)
            .map(|(id, value)| Ok((value.name.clone(), bed.suite.value(i, id)?)))
            .collect::<Result<_>>()?;
        // Inputs are those that were recorded, also where the model would choose other tokens.
        let mut outputs = loaded.run(&frame.symbols, &inputs, None)?;
        found.push(outputs.remove(LOGITS).ok_or_else(|| Error::bug("the platform gave no `logits`"))?);
    }
    Ok(found)
}

/// Whether a fault between kernels changes the logits of any recorded run. One with which the model does not run does.
pub fn matters(bed: &Fixture, bench: &Workbench, mutant: &Mutant, clean: &[Tensor]) -> Result<bool> {
    match logits(bed, &mut platform(bench, std::slice::from_ref(mutant))) {
        Ok(found) => Ok(found.iter().zip(clean).any(|(a, b)| a.bytes()[..] != b.bytes()[..])),
        Err(e) if e.kind() == ErrorKind::DeviceLost => Err(e),
        Err(_) => Ok(true),
    }
}

/// Whether a fault between kernels changes the logits of any recorded run among these faults, too: where no kernel
/// appends anything, one append that does not run is nothing more.
pub fn shows(bed: &Fixture, bench: &Workbench, all: &[Mutant], mutant: &Mutant) -> Result<bool> {
    let others: Vec<Mutant> = all.iter().filter(|m| m.id != mutant.id).cloned().collect();
    if others.is_empty() {
        return Ok(true);
    }
    // With all faults, and with all but this one.
    let found = [all, &others].map(|mutants| logits(bed, &mut platform(bench, mutants)));
    match found {
        [Ok(with), Ok(without)] => Ok(with.iter().zip(&without).any(|(a, b)| a.bytes()[..] != b.bytes()[..])),
        [Err(e), _] | [_, Err(e)] if e.kind() == ErrorKind::DeviceLost => Err(e),
        _ => Ok(true),
    }
}

/// Diagnoses a model on a device with these faults. Those of `equivalent` do not count.
///
/// # Errors
///
/// A lost device or a request to stop. A diagnosis that fails otherwise is told in [`Diagnosed::error`].
pub fn diagnose_faults(
    bed: &Fixture,
    name: &str,
    (bench, checker): (&Workbench, Option<&Workbench>),
    mutants: &[Mutant],
    equivalent: &[String],
    stop: &Stop,
) -> Result<Diagnosed> {
    let start = Instant::now();
    let mut target = platform(bench, mutants);
    let mut checking = checker.map(|checker| platform(checker, mutants));
    let subject = Subject {
        suite: &bed.suite,
        model: &bed.model,
        oracles: &bed.oracles,
        source: &mut CpuPlatform::new(),
        target: &mut target,
        checker: checking.as_mut().map(|c| c as &mut dyn Platform),
        overrides: &Overrides::default(),
        // The functions of the device itself are not measured here.
        reopen: None,
    };
    let found =
        diagnose(subject, &DiagnoseOptions { impact: false, ..DiagnoseOptions::default() }, &Quiet, stop);
    let (found, error) = match found {
        Ok(found) => (Some(found), None),
        Err(e) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => return Err(e),
        Err(e) => (None, Some(e.to_string())),
    };
    let (bugs, hidden): (Vec<&Mutant>, Vec<&Mutant>) =
        mutants.iter().partition(|m| !equivalent.contains(&m.id));
    let Matched { reports, missed, named } = match_reports(&bugs, &hidden, found.as_ref());
    Ok(Diagnosed {
        name: name.into(),
        model: bed.name.clone(),
        tuned_on: tuned_on(name),
        bugs: bugs.iter().map(|m| m.id.clone()).collect(),
        equivalent: equivalent.to_vec(),
        reports,
        missed,
        named,
        error,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Reports and the faults that they stand for.
struct Matched {
    reports: Vec<Reported>,
    /// Ids of faults that no report stands for.
    missed: Vec<String>,
    /// Faults whose report names one of their causes.
    named: usize,
}

/// Which report stands for which fault: one each. A report of an operator stands for the fault of that operator; one of a
/// fault between operators for a fault between kernels, first of all one that names its node, and for one of a fused operator
/// that stands for these operators. What is `hidden` changes no
/// logits as the program is deployed, but may show where launches that join nodes are taken apart: a report of it, with its
/// node or its cause, is neither asked for nor false.
fn match_reports(bugs: &[&Mutant], hidden: &[&Mutant], found: Option<&Diagnosis>) -> Matched {
    let faults: &[Fault] = found.map_or(&[], |d| &d.faults);
    // For each fault the report that stands for it.
    let mut taken: Vec<Option<usize>> = vec![None; bugs.len()];
    // Exact matches first, so that a rough one takes no report that another fault needs.
    for pass in [is_exact, is_rough] {
        for (i, fault) in faults.iter().enumerate() {
            // A report stands for one fault only.
            if taken.contains(&Some(i)) {
                continue;
            }
            let fits = (0..bugs.len()).find(|&b| taken[b].is_none() && pass(bugs[b], fault));
            if let Some(bug) = fits {
                taken[bug] = Some(i);
            }
        }
    }
    let of_hidden = |fault: &Fault| {
        let found = hidden.iter().find(|b| is_exact(b, fault) || by_cause(b, fault));
        found.map(|b| b.id.clone())
    };
    let counted = || bugs.iter().zip(&taken);
    let named = counted().filter(|(bug, fault)| {
        fault.is_some_and(|i| bug.causes.iter().any(|cause| cause.name() == faults[i].cause))
    });
    let named = named.count();
    let missed = counted().filter(|(_, t)| t.is_none()).map(|(bug, _)| bug.id.clone()).collect();
    let report = |(i, fault): (usize, &Fault)| Reported {
        op: fault.op.clone(),
        kind: format!("{:?}", fault.kind).to_lowercase(),
        cause: fault.cause.clone(),
        certain: fault.certain,
        ratio: fault.worst_ratio.min(f64::MAX),
        evidence: fault.evidence.clone(),
        bug: taken
            .iter()
            .position(|t| *t == Some(i))
            .map(|b| bugs[b].id.clone())
            .or_else(|| of_hidden(fault)),
    };
    Matched { reports: faults.iter().enumerate().map(report).collect(), missed, named }
}

/// Whether a report names the operator, or the node of a fault between kernels.
fn is_exact(bug: &Mutant, fault: &Fault) -> bool {
    if bug.is_between() {
        is_between(fault) && fault.nodes.contains(&bug.target)
    } else {
        fault.op.split('+').any(|op| op == bug.op)
    }
}

/// Whether a report of a fault between operators may stand for this one.
fn is_rough(bug: &Mutant, fault: &Fault) -> bool {
    let part = || fault.op.split('+').any(|op| bug.parts.iter().any(|part| part == op));
    is_between(fault) && (bug.is_between() || part())
}

/// Whether such a report names one of the expected causes, too.
fn by_cause(bug: &Mutant, fault: &Fault) -> bool {
    is_rough(bug, fault) && bug.causes.iter().any(|cause| cause.name() == fault.cause)
}

/// Whether a report is of a fault between operators.
fn is_between(fault: &Fault) -> bool {
    fault.kind == tapml_diagnose::FaultKind::Between
}
