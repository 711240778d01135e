//! The bench itself: workers, each with a device of its own, take mutants in turn.

use super::bed::Bed;
use super::crew::{Hands, each};
use super::ops::{OpCases, Sampling, replay};
use super::policy::{POLICIES, close};
use super::report::{CleanRun, Record};
use super::select::tuned_on;
use super::sight::{GRID, Sight, Sighting, platform, sight};
use crate::device::Workbench;
use crate::mutant::Mutant;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tapml_device::Device;
use tapml_graph::{Context, Error, ErrorKind, Result, Tensor};
use tapml_migrate::verdict::{Constants, judge_with};
use tapml_migrate::{Progress, Stop};

/// Opens a device.
pub type Opener<'a> = &'a (dyn Fn() -> Result<Box<dyn Device>> + Sync);

/// How the bench runs.
pub struct RunOptions<'a> {
    /// Opens the device under test; each worker has its own, and another one where a fault has cost it that.
    pub open: Opener<'a>,
    /// Opens a device that checks while it runs.
    pub checker: Option<Opener<'a>>,
    /// How many mutants are tried at once.
    pub workers: usize,
    /// Which calls are replayed.
    pub sampling: Sampling,
    /// Whether other constants of the verdict are measured too.
    pub grid: bool,
    /// No new mutant is begun after this time.
    pub until: Option<Instant>,
}

/// The calls of all operators of some models, prepared when they are first needed.
pub struct Prepared<'a> {
    beds: &'a [Bed],
    sampling: Sampling,
    known: Mutex<HashMap<(String, String), Cell>>,
}

type Cell = Arc<OnceLock<Result<Arc<OpCases>>>>;

impl<'a> Prepared<'a> {
    /// Nothing prepared yet.
    pub fn new(beds: &'a [Bed], sampling: Sampling) -> Prepared<'a> {
        Prepared { beds, sampling, known: Mutex::default() }
    }

    /// The calls of an operator, with what `bench` computes without a fault.
    pub fn of(&self, model: &str, op: &str, bench: &Workbench) -> Result<Arc<OpCases>> {
        let bed = self.beds.iter().find(|b| b.name == model);
        let bed = bed.ok_or_else(|| Error::invalid(format!("there is no model `{model}` here")))?;
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry((model.into(), op.into())).or_default().clone()
        };
        let made = cell.get_or_init(|| {
            let cases = OpCases::of(bed, op, &mut platform(bench, &[]), self.sampling);
            cases.map(Arc::new).context(|| format!("operator `{op}` of `{model}`"))
        });
        made.clone()
    }
}

/// Tries mutants of kernels in their order, and calls `found` for each, from any thread, as soon as it is done. A mutant
/// that costs the device, because it does not end or for another reason, is a fault. The result tells whether all were
/// tried: the time may have been too short.
pub fn kernels(
    prepared: &Prepared<'_>,
    mutants: &[Mutant],
    options: &RunOptions<'_>,
    found: &(dyn Fn(Record) + Sync),
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<bool> {
    let work = |hands: &mut Hands<'_>, mutant: &Mutant| -> Result<()> {
        let cases = prepared.of(&mutant.model, &mutant.op, &hands.bench)?;
        let start = Instant::now();
        let eyes = Sight { bench: &hands.bench, checker: hands.checker.as_ref(), grid: options.grid };
        let seen = match sight(&eyes, &cases, std::slice::from_ref(mutant)) {
            Err(e) if e.kind() == ErrorKind::DeviceLost => {
                let seen = Sighting::lost(&cases, &e, start.elapsed());
                hands.renew().and_then(|()| hands.prove(&cases)).context(|| mutant.id.clone())?;
                seen
            }
            seen => seen.context(|| mutant.id.clone())?,
        };
        found(Record::of(mutant, seen));
        Ok(())
    };
    each("mutants", mutants, options, &work, progress, stop)
}

/// Judges all operators of a model without a fault.
pub fn clean(bed: &Bed, name: &str, prepared: &Prepared<'_>, options: &RunOptions<'_>) -> Result<CleanRun> {
    let start = Instant::now();
    let bench = Workbench::new((options.open)()?);
    let mut run = CleanRun {
        name: name.into(),
        tuned_on: tuned_on(name),
        cases: 0,
        failed: 0,
        failures: Vec::new(),
        measured: Vec::new(),
        accused: 0,
        beyond: 0,
        ratio: 0.0,
        policies: vec![false; POLICIES.len()],
        random: false,
        grid: if options.grid { vec![0.0; GRID.len()] } else { Vec::new() },
        seconds: 0.0,
    };
    for (op, _) in bed.suite.graph().op_kinds() {
        let cases = prepared.of(&bed.name, op, &bench)?;
        add(&mut run, bed, &cases)?;
        let outputs: Vec<&[Tensor]> = cases.cases.iter().map(|c| c.clean.as_slice()).collect();
        let filter = cases.filtered(&outputs)?;
        run.accused += u64::from(!filter.lost().is_empty());
        run.measured.extend(filter.measured().into_iter().map(|found| (op.to_string(), found)));
        let mut clean = platform(&bench, &[]);
        run.beyond += u64::from(!cases.beyond(&mut clean)?.is_empty());
        let outputs = replay(&mut clean, &cases.random.0)?;
        let refused = outputs.into_iter().zip(&cases.random.1).any(|(outputs, reference)| {
            let near = |(a, b): (&Tensor, &Tensor)| close(&a.to_f64(), &b.to_f64(), 1e-2, 1e-2);
            !outputs.is_ok_and(|outputs| reference.iter().zip(&outputs).all(near))
        });
        run.random |= refused;
    }
    run.seconds = start.elapsed().as_secs_f64();
    Ok(run)
}

/// Adds what the verdict and the other policies say of an operator's calls.
fn add(run: &mut CleanRun, bed: &Bed, cases: &OpCases) -> Result<()> {
    for case in &cases.cases {
        let source = Some((case.expected.as_slice(), case.source));
        let with =
            |constants: &Constants| judge_with(constants, &case.exact, &case.clean, case.target, source);
        let judgement = with(&Constants::DECIDING)?;
        run.cases += 1;
        run.ratio = run.ratio.max(judgement.ratio).min(f64::MAX);
        if !judgement.passed() {
            run.failed += 1;
            run.failures.push((bed.suite.case_id(case.case), judgement.ratio.min(f64::MAX)));
        }
        let values = cases.values(case, &case.clean);
        for (all, policy) in run.policies.iter_mut().zip(POLICIES) {
            *all |= !policy.accepts(&values);
        }
        for (all, &(base, chain, shared, lambda)) in run.grid.iter_mut().zip(GRID) {
            let constants = Constants { base, chain, shared, lambda, ..Constants::DECIDING };
            *all = all.max(with(&constants)?.ratio).min(f64::MAX);
        }
    }
    Ok(())
}

/// The moment after which no new work is begun.
pub fn deadline(minutes: Option<f64>) -> Option<Instant> {
    let minutes = minutes.filter(|m| m.is_finite() && *m >= 0.0)?;
    Some(Instant::now() + Duration::from_secs_f64(60.0 * minutes))
}
