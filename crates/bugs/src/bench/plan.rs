//! Which full diagnoses are made: of single faults, of several at once, and of none.

use super::fixture::Fixture;
use super::mutation_run::platform;
use super::run::costs_the_device;
use super::run_options::RunOptions;
use super::whole::{Diagnosed, diagnose_faults, logits, matters, shows};
use super::worker_pool::{WorkerDevices, run_each};
use crate::device::Workbench;
use crate::mutant::Mutant;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tapml_graph::{Context, Error, Result, Tensor};
use tapml_migrate::{Progress, Stop};

/// One diagnosis to make.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCase {
    /// Its name.
    pub name: String,
    /// The model.
    pub model: String,
    /// The faults; none for a clean run.
    pub mutants: Vec<Mutant>,
}

/// The most faults at once.
const MOST: usize = 11;

impl PlannedCase {
    /// A single fault.
    pub fn single(mutant: &Mutant) -> PlannedCase {
        PlannedCase { name: mutant.id.clone(), model: mutant.model.clone(), mutants: vec![mutant.clone()] }
    }

    /// No fault.
    pub fn clean(model: &str, name: &str) -> PlannedCase {
        PlannedCase { name: format!("clean/{name}"), model: model.into(), mutants: Vec::new() }
    }

    /// `count` cases of 2 to 11 faults at once, each of another operator, from mutants that are known to change results.
    /// Every third one has a fault between kernels too.
    pub fn combine_faults(real: &[Mutant], between: &[Mutant], count: usize, seed: u64) -> Vec<PlannedCase> {
        let mut models: Vec<&str> = real.iter().map(|m| m.model.as_str()).collect();
        models.sort();
        models.dedup();
        let mut random = fastrand::Rng::with_seed(seed);
        // Models take turns; the seed alone decides the rest.
        let case = |i: usize| {
            let model = models[i % models.len()];
            let mut pool: Vec<&Mutant> = real.iter().filter(|m| m.model == model).collect();
            random.shuffle(&mut pool);
            let mut ops = HashSet::new();
            // One fault per operator, so that each can have a report of its own.
            pool.retain(|m| ops.insert(m.op.as_str()));
            let wanted = random.usize(2..=MOST).min(pool.len());
            let mut mutants: Vec<Mutant> = pool.into_iter().take(wanted).cloned().collect();
            let others: Vec<&Mutant> = between.iter().filter(|m| m.model == model).collect();
            // It takes the place of one, so that the number of faults stays.
            if i % 3 == 2 && wanted > 2 && !others.is_empty() {
                mutants.pop();
                mutants.push(others[random.usize(..others.len())].clone());
            }
            PlannedCase { name: format!("several/{model}/{seed}.{i}"), model: model.into(), mutants }
        };
        (0..if models.is_empty() { 0 } else { count }).map(case).filter(|c| c.mutants.len() > 1).collect()
    }
}

impl PlannedCase {
    /// Whether these are the case's faults: what several faults are depends on those that there are.
    pub fn is_of(&self, diagnosed: &Diagnosed) -> bool {
        let told: BTreeSet<&String> = diagnosed.bugs.iter().chain(&diagnosed.equivalent).collect();
        self.mutants.iter().map(|mutant| &mutant.id).collect::<BTreeSet<_>>() == told
    }

    /// Whether a prompt longer than the attention window may be needed to see the faults, or belongs to a clean run.
    pub fn long(&self) -> bool {
        self.mutants.is_empty() || self.mutants.iter().any(|m| m.op == "attention")
    }
}

/// Results of the model without a fault, computed by the first worker that needs them.
type Logits = Arc<OnceLock<Result<Arc<Vec<Tensor>>>>>;

/// Makes the diagnoses in their order, and calls `found` for each, from any thread, as soon as it is done.
///
/// Each is made on the bed of its model whose prompts are as long as the case needs. The result tells whether all were made.
///
/// # Errors
///
/// A request to stop, a model without a bed, or a device that is lost without a fault.
pub fn diagnoses(
    beds: &[Fixture],
    cases: &[PlannedCase],
    options: &RunOptions<'_>,
    found: &(dyn Fn(Diagnosed) + Sync),
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<bool> {
    let clean: Mutex<HashMap<String, Logits>> = Mutex::default();
    let work = |hands: &mut WorkerDevices<'_>, case: &PlannedCase| -> Result<()> {
        // Of beds of one model the one whose prompts are as long as wanted.
        let bed = beds.iter().filter(|b| b.name == case.model).min_by_key(|b| b.long != case.long());
        let bed = bed.ok_or_else(|| Error::invalid(format!("there is no model `{}` here", case.model)))?;
        let done = match run_case(bed, case, hands, &clean, stop) {
            Err(e) if costs_the_device(&e) && !case.mutants.is_empty() => {
                hands.renew()?;
                // Without a fault it must work.
                logits(bed, &mut platform(&hands.bench, &[]))?;
                Diagnosed::device_lost(bed, &case.name, &case.mutants, &e)
            }
            done => done.context(|| case.name.clone())?,
        };
        found(done);
        Ok(())
    };
    run_each("diagnoses", cases, options, &work, progress, stop)
}

/// One diagnosis; fails if the device is lost.
fn run_case(
    bed: &Fixture,
    case: &PlannedCase,
    hands: &WorkerDevices<'_>,
    clean: &Mutex<HashMap<String, Logits>>,
    stop: &Stop,
) -> Result<Diagnosed> {
    let mut equivalent = Vec::new();
    // A fault between kernels may change nothing in the recorded runs, alone or beside the others.
    for mutant in case.mutants.iter().filter(|m| m.is_between()) {
        let clean = clean_logits(clean, bed, &hands.bench)?;
        if !matters(bed, &hands.bench, mutant, &clean)? || !shows(bed, &hands.bench, &case.mutants, mutant)? {
            equivalent.push(mutant.id.clone());
        }
    }
    let devices = (&hands.bench, hands.checker.as_ref());
    diagnose_faults(bed, &case.name, devices, &case.mutants, &equivalent, stop)
}

/// What the model computes without a fault, once for each model.
fn clean_logits(
    known: &Mutex<HashMap<String, Logits>>,
    bed: &Fixture,
    bench: &Workbench,
) -> Result<Arc<Vec<Tensor>>> {
    let cell =
        known.lock().unwrap_or_else(PoisonError::into_inner).entry(bed.name.clone()).or_default().clone();
    cell.get_or_init(|| logits(bed, &mut platform(bench, &[])).map(Arc::new)).clone()
}
