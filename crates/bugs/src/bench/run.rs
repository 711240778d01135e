//! The bench itself: workers, each with a device of its own, take mutants in turn.
//!
//! What is shared by workers is computed once behind a cell; mutants themselves share nothing.

use super::fixture::Fixture;
use super::mutation_run::{GRID, MutationRun, Sighting, platform, run_mutants};
use super::op_case::{View, replay};
use super::ops::{OpCases, Sampling};
use super::policy::{POLICIES, PolicyValues, close};
use super::report::{CleanRun, MutantRecord};
use super::run_options::RunOptions;
use super::select::tuned_on;
use super::worker_pool::{WorkerDevices, run_each};
use crate::device::Workbench;
use crate::mutant::Mutant;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Context, Error, ErrorKind, Result, Tensor};
use tapml_migrate::suite::Suite;
use tapml_migrate::verdict::VerdictConstants;
use tapml_migrate::{Oracles, Progress, Stop, composed_suites};

/// The calls of all operators of some models, plain and fused, prepared when they are first needed.
pub struct Prepared<'a> {
    /// The models.
    beds: &'a [Fixture],
    /// Which calls are replayed.
    sampling: Sampling,
    /// Calls by model and operator.
    known: Mutex<HashMap<(String, String), OnceResult<OpCases>>>,
    /// Suites of fused operators by model.
    composed: Mutex<HashMap<String, OnceResult<Vec<Composed>>>>,
}

/// A value that the first to ask computes, or its error. Others wait for it without holding the map's lock.
type OnceResult<T> = Arc<OnceLock<Result<Arc<T>>>>;

/// The recorded values as calls of fused operators in one phase, with their exact results.
struct Composed {
    /// Calls that are composed of recorded values.
    suite: Suite,
    /// Their exact results.
    oracles: Oracles,
}

/// The cell of this key.
fn cell<K: Eq + Hash, T>(cells: &Mutex<HashMap<K, OnceResult<T>>>, key: K) -> OnceResult<T> {
    // The lock is held for a moment only; computing the value happens outside of it.
    cells.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
}

impl<'a> Prepared<'a> {
    /// Nothing prepared yet.
    pub fn new(beds: &'a [Fixture], sampling: Sampling) -> Prepared<'a> {
        Prepared { beds, sampling, known: Mutex::default(), composed: Mutex::default() }
    }

    /// The model of a name.
    fn fixture(&self, model: &str) -> Result<&'a Fixture> {
        let bed = self.beds.iter().find(|b| b.name == model);
        bed.ok_or_else(|| Error::invalid(format!("there is no model `{model}` here")))
    }

    /// The calls of an operator, with what `bench` computes without a fault.
    pub fn op_cases(&self, model: &str, op: &str, bench: &Workbench) -> Result<Arc<OpCases>> {
        let bed = self.fixture(model)?;
        let made = cell(&self.known, (model.into(), op.into()));
        let made = made.get_or_init(|| {
            let cases = self.with_views(bed, op, bench, |views| {
                OpCases::from_views(&bed.model, views, op, &mut platform(bench, &[]), self.sampling)
            });
            cases.map(Arc::new).context(|| format!("operator `{op}` of `{model}`"))
        });
        made.clone()
    }

    /// Does something with the suites that have calls of an operator: the model's own, or those of fused operators.
    pub(crate) fn with_views<T>(
        &self,
        bed: &Fixture,
        op: &str,
        bench: &Workbench,
        work: impl FnOnce(&[View<'_>]) -> Result<T>,
    ) -> Result<T> {
        let recorded = bed.suite.graph().nodes().iter().any(|node| node.op.name() == op);
        let composed = if recorded && !self.sampling.deployed {
            Arc::default()
        } else {
            self.composed_cases(bed, bench)?
        };
        // Operators of the model have their own calls; fused ones have composed calls.
        if recorded {
            let lowered = match composed.as_slice() {
                [decode, prefill] => Some([&decode.suite, &prefill.suite]),
                _ => None,
            };
            return work(&[View { suite: &bed.suite, oracles: &bed.oracles, lowered }]);
        }
        let has = |c: &&Composed| c.suite.graph().op_kinds().iter().any(|(name, _)| *name == op);
        let composed = composed.iter().filter(has);
        let views: Vec<View<'_>> =
            composed.map(|c| View { suite: &c.suite, oracles: &c.oracles, lowered: None }).collect();
        work(&views)
    }

    /// The calls of the fused operators that devices like `bench` run.
    fn composed_cases(&self, bed: &Fixture, bench: &Workbench) -> Result<Arc<Vec<Composed>>> {
        let made = cell(&self.composed, bed.name.clone());
        let made = made.get_or_init(|| {
            let suites = composed_suites(&bed.suite, &platform(bench, &[]))?;
            let budget = bed.oracles.budget();
            let with = |suite| Composed { suite, oracles: Oracles::new(budget) };
            Ok(Arc::new(suites.into_iter().map(with).collect()))
        });
        made.clone()
    }

    /// The operators of a model that have calls: those of its graph, then the fused ones.
    pub(crate) fn ops(&self, bed: &Fixture, bench: &Workbench) -> Result<Vec<&'static str>> {
        let mut ops: Vec<&'static str> = bed.suite.graph().op_kinds().into_iter().map(|(op, _)| op).collect();
        for composed in self.composed_cases(bed, bench)?.iter() {
            let calls = composed.suite.cases().map(|case| composed.suite.graph().node(case.node).op.name());
            for op in calls {
                if !ops.contains(&op) {
                    ops.push(op);
                }
            }
        }
        if self.sampling.deployed {
            // An operator may be fused away on this device, and then has no call.
            let mut called = Vec::with_capacity(ops.len());
            for op in ops {
                let any = |views: &[View<'_>]| Ok(views.iter().any(|view| !view.cases(op).is_empty()));
                if self.with_views(bed, op, bench, any)? {
                    called.push(op);
                }
            }
            return Ok(called);
        }
        Ok(ops)
    }
}

/// Whether a mutant may be why its device is lost. That the way to a device elsewhere is gone says nothing about it.
pub(super) fn costs_the_device(error: &Error) -> bool {
    error.kind() == ErrorKind::DeviceLost && error.detail("connection").is_none()
}

/// Tries mutants of kernels in their order, and calls `found` for each, from any thread, as soon as it is done. A mutant
/// that costs the device, because it does not end or for another reason, is a fault. The result tells whether all were
/// tried: the time may have been too short.
///
/// # Errors
///
/// A request to stop, or a device that is lost without a fault.
pub fn kernels(
    prepared: &Prepared<'_>,
    mutants: &[Mutant],
    options: &RunOptions<'_>,
    found: &(dyn Fn(MutantRecord) + Sync),
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<bool> {
    let work = |hands: &mut WorkerDevices<'_>, mutant: &Mutant| -> Result<()> {
        let cases = prepared.op_cases(&mutant.model, &mutant.op, &hands.bench)?;
        let start = Instant::now();
        let eyes = MutationRun { bench: &hands.bench, checker: hands.checker.as_ref(), grid: options.grid };
        let seen = match run_mutants(&eyes, &cases, std::slice::from_ref(mutant)) {
            Err(e) if costs_the_device(&e) => {
                let seen = Sighting::device_lost(&cases, &e, start.elapsed());
                // The device must run without the fault, or else the fault is not why it was lost.
                hands.renew().and_then(|()| hands.prove(&cases)).context(|| mutant.id.clone())?;
                seen
            }
            seen => seen.context(|| mutant.id.clone())?,
        };
        found(MutantRecord::from_sighting(mutant, seen));
        Ok(())
    };
    run_each("mutants", mutants, options, &work, progress, stop)
}

/// Judges all operators of a model without a fault.
///
/// Everything that judges mutants judges the device itself, so that false alarms show.
///
/// # Errors
///
/// What ends the run: a lost device, or calls that cannot be prepared.
pub fn clean(
    bed: &Fixture,
    name: &str,
    prepared: &Prepared<'_>,
    options: &RunOptions<'_>,
) -> Result<CleanRun> {
    let start = Instant::now();
    let bench = Workbench::new((options.open)()?);
    let mut run = CleanRun {
        name: name.into(),
        tuned_on: tuned_on(name),
        cases: 0,
        failed: 0,
        failures: Vec::new(),
        made: 0,
        made_failures: Vec::new(),
        measured: Vec::new(),
        accused: 0,
        overflows: 0,
        ratio: 0.0,
        policies: vec![false; POLICIES.len()],
        random: false,
        grid: if options.grid { vec![0.0; GRID.len()] } else { Vec::new() },
        seconds: 0.0,
    };
    for op in prepared.ops(bed, &bench)? {
        let cases = prepared.op_cases(&bed.name, op, &bench)?;
        add(&mut run, &cases)?;
        add_made(&mut run, &cases)?;
        let outputs: Vec<&[Tensor]> = cases.cases.iter().map(|c| c.clean.as_slice()).collect();
        let filter = cases.filter_outputs(&outputs)?;
        run.accused += u64::from(!filter.lost_attributes().is_empty());
        run.measured.extend(filter.measured_attributes().into_iter().map(|found| (op.to_string(), found)));
        let mut clean = platform(&bench, &[]);
        run.overflows += u64::from(!cases.find_overflows(&mut clean)?.is_empty());
        let outputs = replay(&mut clean, &cases.random.0)?;
        let refused = outputs.into_iter().zip(&cases.random.1).any(|(outputs, reference)| {
            let near = |(a, b): (&Tensor, &Tensor)| close(&a.to_f64(), &b.to_f64(), 1e-2, 1e-2);
            !outputs.is_ok_and(|outputs| reference.iter().zip(&outputs).all(near))
        });
        // One operator that a unit test refuses is an alarm of the whole run.
        run.random |= refused;
    }
    run.seconds = start.elapsed().as_secs_f64();
    Ok(run)
}

/// Adds what the verdict and the other policies say of an operator's calls.
fn add(run: &mut CleanRun, cases: &OpCases) -> Result<()> {
    for case in &cases.cases {
        let judgement = case.judge(&VerdictConstants::DECIDING, &case.clean)?;
        run.cases += 1;
        // JSON has no infinity.
        run.ratio = run.ratio.max(judgement.ratio).min(f64::MAX);
        if !judgement.passes() {
            run.failed += 1;
            run.failures.push((case.name.clone(), judgement.ratio.min(f64::MAX)));
        }
        let values = PolicyValues { exact: &case.exact, reference: &case.expected, observed: &case.clean };
        for (all, policy) in run.policies.iter_mut().zip(POLICIES) {
            *all |= !policy.accepts(&values);
        }
        for (all, &(base, chain, shared, lambda)) in run.grid.iter_mut().zip(GRID) {
            let constants = VerdictConstants { base, chain, shared, lambda, ..VerdictConstants::DECIDING };
            *all = all.max(case.judge(&constants, &case.clean)?.ratio).min(f64::MAX);
        }
    }
    Ok(())
}

/// Adds what the verdict says of the calls made beside an operator's own.
fn add_made(run: &mut CleanRun, cases: &OpCases) -> Result<()> {
    for case in &cases.made {
        let judgement = case.judge(&case.known.clean)?;
        run.made += 1;
        if !case.made.passes(&judgement) {
            run.made_failures.push((case.known.name.clone(), judgement.ratio.min(f64::MAX)));
        }
    }
    Ok(())
}

/// The moment after which no new work is begun; `None` for times that no clock reaches.
pub fn deadline(minutes: Option<f64>) -> Option<Instant> {
    let time = Duration::try_from_secs_f64(60.0 * minutes?).ok()?;
    Instant::now().checked_add(time)
}
