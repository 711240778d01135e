//! One mutant on the recorded calls of its operator: does anything change, and who sees it?

use super::made;
use super::noise::Noise;
use super::op_case::{OpCase, replay};
use super::ops::{OpCases, is_explained};
use super::policy::{POLICIES, PolicyValues, close};
use crate::device::Workbench;
use crate::mutant::Mutant;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tapml_exec::{DevicePlatform, Overrides, Platform};
use tapml_graph::{Error, ErrorKind, Result, Tensor};
use tapml_migrate::filter::Lost;
use tapml_migrate::range_test::Overflow;
use tapml_migrate::report::is_defect;
use tapml_migrate::verdict::{Judgement, VerdictConstants};

/// Sets of constants that are measured beside the deciding ones: `base` and `chain` halved and doubled, and so on.
/// The four numbers are `base`, `chain`, `shared` and `lambda` of [`VerdictConstants`].
pub const GRID: &[(f64, f64, f64, f64)] = &[
    (1.0, 0.5, 0.5, 20.0),
    (2.0, 1.0, 0.5, 20.0),
    (4.0, 1.0, 0.5, 20.0),
    (4.0, 2.0, 0.5, 20.0),
    (4.0, 4.0, 0.5, 20.0),
    (8.0, 1.0, 0.5, 20.0),
    (8.0, 2.0, 0.5, 20.0),
    (8.0, 4.0, 0.5, 20.0),
    (8.0, 8.0, 0.5, 20.0),
    (16.0, 4.0, 0.5, 20.0),
    (16.0, 8.0, 0.5, 20.0),
    (8.0, 4.0, 0.125, 20.0),
    (8.0, 4.0, 0.25, 20.0),
    (8.0, 4.0, 1.0, 20.0),
    (8.0, 4.0, 0.5, 10.0),
    (8.0, 4.0, 0.5, 40.0),
];

/// What a mutant is, measured without any verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MutantClass {
    /// It changes results, or a checking device sees a defect.
    Real,
    /// Bit-identical results on all calls.
    Equivalent,
    /// Other bits, but as near to the exact result as what correct code computes, see [`Noise`].
    AsExact,
    /// The device's compiler does not take the changed text.
    Invalid,
}

/// What was seen of one mutant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sighting {
    /// See [`MutantClass`].
    pub class: MutantClass,
    /// Calls replayed.
    pub cases: u64,
    /// Calls with other bits than without the fault.
    pub differing: u64,
    /// Calls that the verdict refuses.
    pub failed: u64,
    /// The largest ratio of observed to allowed error.
    pub ratio: f64,
    /// The test that decided there.
    pub criterion: String,
    /// Defects that a checking device saw.
    pub findings: u64,
    /// Whether that is because its text, in a language that only the device's compiler can judge, is not valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused_by_compiler: bool,
    /// Why the kernel could not be run, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Attributes that the matched filter finds lost where all elements pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Lost>,
    /// What probes of the range show, where all recorded calls pass.
    #[serde(rename = "beyond", default, skip_serializing_if = "Vec::is_empty")]
    pub overflows: Vec<Overflow>,
    /// Names of the made calls that fail, up to the first, where recorded calls and probes pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
    /// Whether it cost the device: it did not end, or the device was lost by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Whether each of [`POLICIES`] refuses a call.
    pub policies: Vec<bool>,
    /// Whether a unit test on random normal inputs refuses.
    pub random: bool,
    /// The largest ratio under each set of [`GRID`], if it was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<f64>,
    /// Positions in the calls that the verdict refuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kills: Vec<u32>,
    /// Wall-clock time.
    pub seconds: f64,
}

impl Sighting {
    /// Nothing seen yet of a mutant on these calls.
    fn empty(cases: &OpCases) -> Sighting {
        Sighting {
            class: MutantClass::Equivalent,
            cases: cases.cases.len() as u64,
            differing: 0,
            failed: 0,
            ratio: 0.0,
            criterion: String::new(),
            findings: 0,
            refused_by_compiler: false,
            error: None,
            attributes: Vec::new(),
            overflows: Vec::new(),
            made: Vec::new(),
            lost: false,
            policies: vec![false; POLICIES.len()],
            random: false,
            grid: Vec::new(),
            kills: Vec::new(),
            seconds: 0.0,
        }
    }

    /// What is seen of a mutant by which the device was lost; nobody can overlook it.
    pub fn device_lost(cases: &OpCases, error: &Error, after: Duration) -> Sighting {
        let what = if error.detail("deadline").is_some() { "did not end" } else { "the device was lost" };
        let seconds = after.as_secs_f64();
        let mut found = Sighting { class: MutantClass::Real, lost: true, seconds, ..Sighting::empty(cases) };
        found.refuse(format!("{what}: {error}"));
        found
    }

    /// No policy accepts what could not be run.
    fn refuse(&mut self, why: String) {
        self.error = Some(why);
        self.policies.fill(true);
        self.random = true;
    }

    /// Whether values alone tell it, or it could not be run.
    pub fn is_seen(&self) -> bool {
        self.seen_unmade() || !self.made.is_empty()
    }

    /// Whether values tell it without made calls.
    pub fn seen_unmade(&self) -> bool {
        self.failed > 0 || self.error.is_some() || !self.attributes.is_empty() || !self.overflows.is_empty()
    }

    /// Whether the verdict, a checking device or the compiler sees the mutant.
    pub fn is_caught(&self) -> bool {
        self.is_seen() || self.findings > 0
    }
}

/// Where mutants are seen.
pub struct MutationRun<'a> {
    /// The device under test.
    pub bench: &'a Workbench,
    /// A device that checks while it runs, if there is one.
    pub checker: Option<&'a Workbench>,
    /// Whether other constants are measured too.
    pub grid: bool,
}

/// A faulty platform.
pub fn platform(bench: &Workbench, mutants: &[Mutant]) -> DevicePlatform {
    DevicePlatform::new(Box::new(bench.device(mutants)), Overrides::default())
}

/// Replays the calls of an operator with these mutants of it. Fails only if the device is lost.
///
/// Steps are skipped where an earlier one has seen the mutant: attributes only if all elements pass, probes only if nothing was seen, made
/// calls last.
pub fn run_mutants(sight: &MutationRun<'_>, cases: &OpCases, mutants: &[Mutant]) -> Result<Sighting> {
    let start = Instant::now();
    let mut faulty = platform(sight.bench, mutants);
    let mut found = Sighting::empty(cases);
    let outputs = run(&mut faulty, cases, &mut found)?;
    let seen: Vec<CallResult> = match &outputs {
        Some(outputs) => {
            let pairs = cases.cases.par_iter().zip(outputs);
            let look = |(case, outputs): (&OpCase, &Vec<Tensor>)| {
                look(sight, case, outputs, &|| case.judge(&VerdictConstants::DECIDING, outputs))
            };
            pairs.map(look).collect::<Result<_>>()?
        }
        None => Vec::new(),
    };
    let noise: Noise = seen.iter().map(|s| s.noise).sum();
    for (i, seen) in seen.into_iter().enumerate() {
        found.add(i as u32, seen);
    }
    if found.differing > 0 {
        found.class = if cases.explains(noise) { MutantClass::AsExact } else { MutantClass::Real };
    }
    // The filter looks at elements that pass; a call that fails is seen already.
    if let (Some(outputs), 0, true) = (&outputs, found.failed, found.differing > 0) {
        let outputs: Vec<&[Tensor]> = outputs.iter().map(Vec::as_slice).collect();
        found.attributes = cases.filter_outputs(&outputs)?.lost_attributes();
    }
    // Probes take calls of their own, so they are made only if needed.
    if !found.is_seen() {
        found.overflows = cases.find_overflows(&mut faulty)?;
    }
    if found.error.is_none() && (found.class != MutantClass::Real || !found.is_seen()) {
        made_calls(sight, &mut faulty, cases, &mut found)?;
    }
    // Only these need a checking device; it is slow.
    if mutants.iter().any(|m| m.family == crate::Family::Synchronisation) {
        found.findings = findings(sight, cases, mutants)?;
    }
    if found.error.is_some() || found.findings > 0 {
        found.class = MutantClass::Real;
    }
    // Such a mutant is no fault that could be found.
    if found.refused_by_compiler {
        found.class = MutantClass::Invalid;
    }
    found.seconds = start.elapsed().as_secs_f64();
    Ok(found)
}

/// Runs made calls up to the first that fails. One that differs by more than correct code does makes the mutant a fault,
/// too.
fn made_calls(
    sight: &MutationRun<'_>,
    faulty: &mut dyn Platform,
    cases: &OpCases,
    found: &mut Sighting,
) -> Result<()> {
    let (mut noise, mut ran) = (Noise::default(), Vec::new());
    for case in &cases.made {
        let outputs = match made::run_made(faulty, &case.made) {
            Err(e) if e.kind() == ErrorKind::DeviceLost => return Err(e),
            Err(e) => {
                found.refuse(format!("{}: {e}", case.known.name));
                return Ok(());
            }
            Ok(outputs) => outputs,
        };
        let seen = look(sight, &case.known, &outputs, &|| case.judge(&outputs))?;
        noise = noise + seen.noise;
        ran.push((&case.known, seen.differs));
        // Other policies may look at made calls as well.
        found.policies.iter_mut().zip(&seen.refused).for_each(|(all, own)| *all |= own);
        if let Some(judged) = seen.judgement.filter(|judged| !case.made.passes(judged)) {
            found.ratio = found.ratio.max(judged.ratio.min(f64::MAX));
            found.criterion = judged.criterion.name().into();
            found.made.push(case.known.name.clone());
            break;
        }
    }
    let known = ran.iter().map(|(known, _)| *known);
    // Errors over all made calls together, as for recorded ones.
    if ran.iter().any(|(_, differs)| *differs) && !is_explained(known, noise) {
        found.class = MutantClass::Real;
    }
    Ok(())
}

/// What one call shows.
/// Nothing but `noise` is known of a call with equal bits.
struct CallResult {
    /// Whether any bit is another than without the fault.
    differs: bool,
    /// How far the outputs are from the exact ones.
    noise: Noise,
    /// The verdict; absent if nothing differs.
    judgement: Option<Judgement>,
    /// Whether each policy refuses the call.
    refused: Vec<bool>,
    /// Ratios under other constants.
    grid: Vec<f64>,
}

impl Sighting {
    /// Adds what one call shows; `index` is its place among the calls.
    fn add(&mut self, index: u32, seen: CallResult) {
        // Nothing else is known of it.
        if !seen.differs {
            return;
        }
        self.differing += 1;
        self.policies.iter_mut().zip(seen.refused).for_each(|(all, own)| *all |= own);
        self.grid.resize(seen.grid.len(), 0.0);
        self.grid.iter_mut().zip(seen.grid).for_each(|(all, own)| *all = all.max(own));
        let Some(judgement) = seen.judgement else { return };
        // JSON has no infinity.
        if judgement.ratio >= self.ratio {
            self.ratio = judgement.ratio.min(f64::MAX);
            self.criterion = judgement.criterion.name().into();
        }
        if !judgement.passes() {
            self.failed += 1;
            self.kills.push(index);
        }
    }
}

/// The outputs of all calls, and what the unit test says; `None` if a call could not be run.
fn run(faulty: &mut dyn Platform, cases: &OpCases, found: &mut Sighting) -> Result<Option<Vec<Vec<Tensor>>>> {
    let all = replay(faulty, &cases.calls)?.into_iter().collect::<Result<Vec<_>>>();
    let outputs = match all {
        Ok(outputs) => outputs,
        Err(e) if e.kind() == ErrorKind::DeviceLost => return Err(e),
        Err(e) => {
            // Only the device's compiler can judge CUDA; WGSL was validated before.
            found.refused_by_compiler = e.kind() == ErrorKind::Compile;
            found.refuse(e.to_string());
            return Ok(None);
        }
    };
    // The test of random inputs is for comparison; it decides nothing.
    let (calls, references) = &cases.random;
    let random = replay(faulty, calls)?;
    found.random = random.into_iter().zip(references).any(|(outputs, reference)| match outputs {
        Ok(outputs) => {
            let near = |(a, b): (&Tensor, &Tensor)| close(&a.to_f64(), &b.to_f64(), 1e-2, 1e-2);
            !reference.iter().zip(&outputs).all(near)
        }
        Err(_) => true,
    });
    Ok(Some(outputs))
}

/// What the outputs of one call show; `deciding` is the verdict.
fn look(
    sight: &MutationRun<'_>,
    case: &OpCase,
    outputs: &[Tensor],
    deciding: &dyn Fn() -> Result<Judgement>,
) -> Result<CallResult> {
    let same = |(a, b): (&Tensor, &Tensor)| a.bytes()[..] == b.bytes()[..];
    // Equal bits need no verdict.
    if case.clean.iter().zip(outputs).all(same) {
        let nothing = CallResult {
            differs: false,
            noise: case.noise,
            judgement: None,
            refused: Vec::new(),
            grid: Vec::new(),
        };
        return Ok(nothing);
    }
    let judgement = deciding()?;
    let values = PolicyValues { exact: &case.exact, reference: &case.expected, observed: outputs };
    let refused = POLICIES.iter().map(|policy| !policy.accepts(&values)).collect();
    // Other constants move a ratio by little: what is far on either side stays there.
    let near = (1.0 / 64.0..64.0).contains(&judgement.ratio);
    let grid = GRID.iter().filter(|_| sight.grid).map(|&(base, chain, shared, lambda)| {
        let constants = VerdictConstants { base, chain, shared, lambda, ..VerdictConstants::DECIDING };
        let ratio = if near { case.judge(&constants, outputs)?.ratio } else { judgement.ratio };
        Ok(ratio.min(f64::MAX))
    });
    let grid = grid.collect::<Result<_>>()?;
    Ok(CallResult {
        differs: true,
        noise: Noise::from_outputs(&case.exact, outputs),
        judgement: Some(judgement),
        refused,
        grid,
    })
}

/// Defects that the checking device sees in a few calls.
fn findings(sight: &MutationRun<'_>, cases: &OpCases, mutants: &[Mutant]) -> Result<u64> {
    let Some(checker) = sight.checker else { return Ok(0) };
    let mut faulty = platform(checker, mutants);
    replay(&mut faulty, &cases.checked)?;
    Ok(faulty.take_findings().iter().filter(|f| is_defect(f)).count() as u64)
}
