//! Trials: whether smaller calls still fail. Each is judged against an oracle computed anew from the values it has.
//!
//! A smaller call counts only if it fails as the whole one does: by single elements, by all together, or with the same sort of error.

use crate::specimen::Specimen;
use rayon::prelude::*;
use std::time::{Duration, Instant};
use tapml_exec::{Call, Phase, Platform};
use tapml_graph::{Error, ErrorKind, Result, Tensor};
use tapml_migrate::verdict::{AMPLITUDE, COPIES, Criterion, Exact, Judgement, Precision, judge};
use tapml_migrate::{Oracles, Stop};
use tapml_reference::{Value, oracle};

/// How far a smaller call must exceed its allowed error to count as failing, at most: half as far as the whole call does is
/// enough. One that fails by a hair here may pass on the next device.
pub const CLEAR: f64 = 2.0;
/// Seed of the oracle's disturbances.
/// Any fixed number: trials must give the same each time.
const SEED: u64 = 1;

/// How a call failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Its outputs are wrong.
    Wrong(Box<Wrong>),
    /// It could not be run, such as for a kernel that the driver refuses.
    Error(Error),
}

/// Wrong outputs with what tells so.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The exact outputs.
    pub exact: Vec<Exact>,
    /// What the platform gave.
    pub observed: Vec<Tensor>,
    /// The precision that the kernel declares.
    pub precision: Precision,
    /// The verdict.
    pub judgement: Judgement,
}

impl Failure {
    /// Observed over allowed error; infinite if the call could not be run.
    pub fn ratio(&self) -> f64 {
        match self {
            Failure::Wrong(wrong) => wrong.judgement.ratio,
            Failure::Error(_) => f64::INFINITY,
        }
    }

    /// What decided, in plain words.
    pub fn criterion(&self) -> &'static str {
        match self {
            Failure::Wrong(wrong) => wrong.judgement.criterion.name(),
            Failure::Error(error) => error.kind().name(),
        }
    }
}

/// What a trial showed.
#[derive(Clone, Debug)]
pub enum TrialOutcome {
    /// It fails as the whole call does.
    Fails(Failure),
    /// It does not.
    Passes {
        /// Observed over allowed error.
        ratio: f64,
    },
    /// It says nothing: the operator or the platform refuses such a call.
    Invalid(Error),
}

/// What makes a smaller call fail like the whole one.
#[derive(Clone, Debug, PartialEq)]
enum Sort {
    /// Any failure; nothing is known yet.
    Any,
    /// A single element exceeds its allowed error so many times.
    Element(f64),
    /// Only all elements together tell, by so many times what is allowed.
    Together(f64),
    /// The call cannot be run, for this sort of reason.
    Error(Reason),
}

/// Why a call could not be run, as far as a smaller call must share it: the kind, and what is told beside the message, such as
/// that an output has another type, or that the process ended.
#[derive(Clone, Debug, PartialEq)]
struct Reason(ErrorKind, Vec<String>);

impl Reason {
    /// Messages differ with sizes, so only names of details are compared.
    fn from_error(error: &Error) -> Reason {
        Reason(error.kind(), error.details().iter().map(|(name, _)| name.clone()).collect())
    }
}

/// Runs and judges calls.
pub struct Trials<'a> {
    /// Where calls are run.
    platform: &'a mut dyn Platform,
    /// Who computes exact results of operators of others.
    oracles: &'a Oracles,
    /// The user's wish to stop, which counts as the end of time.
    stop: &'a Stop,
    /// When the search should be done.
    deadline: Instant,
    /// What a failure must be like.
    sort: Sort,
    /// Whether the exact results of the whole call are finite, as those of a smaller one must then be.
    finite: bool,
    /// Runs of each call.
    repeats: usize,
    /// Calls that were run.
    run: u64,
}

impl<'a> Trials<'a> {
    /// Trials on this platform that should be done by the deadline.
    pub fn new(
        platform: &'a mut dyn Platform,
        oracles: &'a Oracles,
        stop: &'a Stop,
        deadline: Instant,
    ) -> Trials<'a> {
        Trials { platform, oracles, stop, deadline, sort: Sort::Any, finite: false, repeats: 1, run: 0 }
    }

    /// Who computes exact results.
    pub fn oracles(&self) -> &'a Oracles {
        self.oracles
    }

    /// Calls that were run so far.
    pub fn count(&self) -> u64 {
        self.run
    }

    /// Whether time is up, or the user has asked to stop.
    pub fn is_expired(&self) -> bool {
        self.stop.check().is_err() || Instant::now() >= self.deadline
    }

    /// Gives the trials so much more time from now on.
    pub fn extend(&mut self, by: Duration) {
        self.deadline = Instant::now() + by;
    }

    /// From here on a call fails only if it fails like this, in at least one of so many runs.
    pub fn expect(&mut self, failure: &Failure, repeats: usize) {
        self.repeats = repeats;
        self.sort = match failure {
            Failure::Error(error) => Sort::Error(Reason::from_error(error)),
            Failure::Wrong(w) if w.judgement.element_ratio > 1.0 => {
                Sort::Element(clear(w.judgement.element_ratio))
            }
            Failure::Wrong(w) => Sort::Together(clear(w.judgement.ratio)),
        };
        self.finite = match failure {
            Failure::Wrong(wrong) => is_finite(&wrong.exact),
            Failure::Error(_) => false,
        };
    }

    /// In how many of `times` runs the call fails.
    ///
    /// # Errors
    ///
    /// A call that cannot be judged, and what ends all trials.
    pub fn failures(&mut self, specimen: &Specimen, times: usize) -> Result<(usize, Option<Failure>)> {
        // Each run is counted by itself here.
        let (repeats, mut failed, mut last) = (std::mem::replace(&mut self.repeats, 1), 0, None);
        let outcomes = self.run(&vec![specimen.clone(); times]);
        self.repeats = repeats;
        for outcome in outcomes? {
            match outcome {
                TrialOutcome::Fails(failure) => (failed, last) = (failed + 1, Some(failure)),
                TrialOutcome::Passes { .. } => {}
                TrialOutcome::Invalid(error) => return Err(error),
            }
        }
        Ok((failed, last))
    }

    /// Runs each call, in one batch where the platform can, and judges it. Fails as a whole only if the platform can run
    /// no call any more, or on request.
    pub fn run(&mut self, specimens: &[Specimen]) -> Result<Vec<TrialOutcome>> {
        // What is small already is kept.
        if matches!(self.sort, Sort::Any) {
            self.stop.check()?;
        }
        let exact: Vec<Result<Vec<Exact>>> =
            // The oracle takes most of the time, and calls do not depend on each other.
            specimens.par_iter().map(|specimen| exact(specimen, self.oracles)).collect();
        let mut calls: Vec<Call> = Vec::new();
        let mut of: Vec<usize> = Vec::new();
        for (i, specimen) in specimens.iter().enumerate().filter(|(i, _)| exact[*i].is_ok()) {
            of.extend(std::iter::repeat_n(i, self.repeats));
            calls.extend(std::iter::repeat_n(specimen.call.clone(), self.repeats));
        }
        self.run += calls.len() as u64;
        let mut outputs: Vec<Option<Result<Vec<Tensor>>>> = calls.iter().map(|_| None).collect();
        self.platform.replay(&calls, &mut |at, result| {
            if let Some(slot) = outputs.get_mut(at) {
                *slot = Some(result);
            }
        })?;
        // Findings of trials are nobody's; kept, they would fill memory.
        self.platform.take_findings();
        let mut outcomes: Vec<TrialOutcome> = exact
            .iter()
            .map(|e| match e {
                Ok(_) => TrialOutcome::Passes { ratio: 0.0 },
                Err(error) => TrialOutcome::Invalid(error.clone()),
            })
            .collect();
        for (result, i) in outputs.into_iter().zip(of) {
            let Ok(exact) = &exact[i] else { continue };
            let result = result.unwrap_or_else(|| Err(Error::bug("the platform gave no result")));
            let next = self.outcome(&specimens[i], exact, result)?;
            outcomes[i] =
                worse(std::mem::replace(&mut outcomes[i], TrialOutcome::Passes { ratio: 0.0 }), next);
        }
        Ok(outcomes)
    }

    /// Judges one run. An error is a failure, no answer, or the end of all trials, by its kind and by what is expected.
    fn outcome(
        &self,
        specimen: &Specimen,
        exact: &[Exact],
        result: Result<Vec<Tensor>>,
    ) -> Result<TrialOutcome> {
        let observed = match result {
            Ok(observed) => observed,
            Err(e) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => return Err(e),
            // An operator that the platform does not have is no failure of a kernel.
            Err(e) if matches!(self.sort, Sort::Any) && e.kind() != ErrorKind::Unsupported => {
                return Ok(TrialOutcome::Fails(Failure::Error(e)));
            }
            Err(e) if self.sort == Sort::Error(Reason::from_error(&e)) => {
                return Ok(TrialOutcome::Fails(Failure::Error(e)));
            }
            Err(e) => return Ok(TrialOutcome::Invalid(e)),
        };
        // An overflow that the whole call does not have would be another failure.
        if self.finite && !is_finite(exact) {
            return Ok(TrialOutcome::Invalid(Error::unsupported("the exact result is not finite")));
        }
        let precision = match self.precision(&specimen.call) {
            Ok(precision) => precision,
            Err(e) => return Ok(TrialOutcome::Invalid(e)),
        };
        expect_types(&specimen.call, &observed)?;
        let judgement = judge(exact, &observed, precision, None)?;
        let fails = match self.sort {
            Sort::Any => !judgement.passes(),
            Sort::Together(times) => judgement.ratio > times,
            Sort::Element(times) => !judgement.passes() && is_clear(&judgement, times),
            Sort::Error(_) => false,
        };
        let ratio = judgement.ratio;
        let wrong = || Box::new(Wrong { exact: exact.to_vec(), observed, precision, judgement });
        Ok(if fails { TrialOutcome::Fails(Failure::Wrong(wrong())) } else { TrialOutcome::Passes { ratio } })
    }

    /// What the kernel declares for the sizes of this call; another call may have another kernel.
    fn precision(&self, call: &Call) -> Result<Precision> {
        let phase = Phase::of_run(&call.symbols);
        let declared = self.platform.kernel_for(&call.op, &call.input_types, phase)?.accumulate;
        let terms = usize::try_from(declared.chain.eval(&call.symbols)?).unwrap_or(usize::MAX);
        Ok(Precision { accumulate: declared.dtype, terms })
    }
}

/// See [`CLEAR`].
fn clear(whole: f64) -> f64 {
    // Halfway between what is allowed and what the whole call shows, so that a weak failure can be reduced too.
    CLEAR.min((1.0 + whole) / 2.0)
}

/// Whether a single element exceeds its allowed error so many times. For another choice there is no such scale.
fn is_clear(judgement: &Judgement, times: f64) -> bool {
    judgement.element_ratio > if judgement.criterion == Criterion::Choice { 1.0 } else { times }
}

/// The outcome of two runs of one call.
fn worse(a: TrialOutcome, b: TrialOutcome) -> TrialOutcome {
    match (a, b) {
        (TrialOutcome::Passes { ratio: a }, TrialOutcome::Passes { ratio: b }) => {
            TrialOutcome::Passes { ratio: a.max(b) }
        }
        // One run that fails is enough: see `Trials::expect`.
        (TrialOutcome::Fails(failure), _) | (_, TrialOutcome::Fails(failure)) => TrialOutcome::Fails(failure),
        (TrialOutcome::Invalid(error), _) | (_, TrialOutcome::Invalid(error)) => TrialOutcome::Invalid(error),
    }
}

/// Whether no exact value is NaN or infinite.
fn is_finite(exact: &[Exact]) -> bool {
    exact.iter().all(|e| e.values.iter().all(|v| v.is_finite()))
}

/// The exact outputs of a call and how far they move under disturbances; see [`tapml_migrate::verdict`].
fn exact(specimen: &Specimen, oracles: &Oracles) -> Result<Vec<Exact>> {
    let call = &specimen.call;
    call.check()?;
    if call.op.is_foreign() {
        return oracles.exact(call, SEED);
    }
    let inputs = call.inputs.iter().map(Value::from_tensor).collect::<Result<Vec<_>>>()?;
    let found = oracle(&call.op, &call.symbols, &inputs, &specimen.is_weight, AMPLITUDE, COPIES, SEED)?;
    Ok(Exact::of_outputs(&found))
}

/// Fails unless the platform gave what the graph says.
fn expect_types(call: &Call, outputs: &[Tensor]) -> Result<()> {
    let expected = call.output_types.iter().map(|t| t.bind(&call.symbols)).collect::<Result<Vec<_>>>()?;
    let found: Vec<_> = outputs.iter().map(tapml_migrate::tensor_type).collect();
    if expected == found {
        return Ok(());
    }
    Err(Error::bug(format!("expected outputs {expected:?}, the platform gave {found:?}")))
}
