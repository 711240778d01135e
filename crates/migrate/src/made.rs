//! Made calls: what recorded calls do not reach. A kernel works in several ways ([`tapml_exec::Regime`]), and prompts of
//! twenty tokens know nothing of what happens behind a tile of 64 rows or 256 keys. For each regime that no recorded call
//! of a kernel reaches, a call of the same node is made at the smallest sizes that do; where a rest of a step is left, it is half
//! a step at least, so that what is wrong with it weighs enough to be seen.
//!
//! A made call has the operator, attributes, weights and types of a recorded one. Each row of an input is a recorded row of
//! it, in turn, and a cache without recorded rows takes those of another value of the same width. Every number is scaled by
//! a factor of its own between 0.75 and 1: the tests on the distribution of errors take elements for independent, and the
//! same row twice has the same errors twice. A made call is judged by the verdict that recorded calls are judged by,
//! without the noise of the source.
//!
//! Beside these, each kernel gets calls with rows that no prompt gives (`extremes.rs`), at recorded sizes. Of their
//! verdicts single elements decide, and where NaN and infinities are.

mod call;
mod plan;
mod sizes;

pub(crate) use call::with_inputs;
pub use call::{MadeCall, Purpose};

use crate::choices::KernelChoices;
use crate::judged::check_types;
use crate::oracle::Oracles;
use crate::reached::{KernelRegimes, RowRegimes, Unreached};
use crate::report::Failure;
use crate::stop::Stop;
use crate::suite::{Case, Suite};
use crate::verdict::Judgement;
use plan::{CallPlan, CallSource, Reach, Variant};
use tapml_exec::Platform;
use tapml_graph::{ErrorKind, Model, Result, Tensor};

/// A made call that fails.
#[derive(Clone, Debug)]
pub struct MadeFailure {
    /// The call.
    pub made: MadeCall,
    /// The verdict, or why it could not be run.
    pub outcome: std::result::Result<Judgement, tapml_graph::Error>,
}

impl MadeFailure {
    /// Observed error over allowed error; infinite if the call could not be run.
    pub fn ratio(&self) -> f64 {
        self.outcome.as_ref().map_or(f64::INFINITY, |judged| judged.ratio)
    }

    /// As reports have it.
    pub fn failure(&self) -> Failure {
        Failure::from_outcome(self.made.id(), self.made.call.node.clone(), &self.outcome)
    }
}

/// What the made calls of an operator gave.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Calls that were run.
    pub calls: u64,
    /// Those that fail.
    pub failures: Vec<MadeFailure>,
    /// The regimes of each kernel.
    pub regimes: Vec<KernelRegimes>,
}

/// The calls that `check` makes beside these cases of one operator. `choices` are the kernels of the cases.
pub fn made_calls(
    suite: &Suite,
    model: &Model,
    choices: &KernelChoices,
    cases: &[Case],
) -> Result<Vec<MadeCall>> {
    let source = CallSource { suite, model, choices };
    let mut made = Vec::new();
    for variant in source.variants(cases) {
        for planned in &source.plan(&variant).calls {
            // A call that cannot be made is told with the regimes.
            made.extend(source.make(&variant, planned)?.ok());
        }
    }
    Ok(made)
}

/// The regimes of the kernels of these cases of one operator, without running anything.
pub fn regimes(
    suite: &Suite,
    model: &Model,
    choices: &KernelChoices,
    cases: &[Case],
) -> Result<Vec<RowRegimes>> {
    let source = CallSource { suite, model, choices };
    let mut rows = Vec::new();
    for variant in source.variants(cases) {
        let plan = source.plan(&variant);
        let made = plan.calls.iter().map(|planned| Ok(source.make(&variant, planned)?.map(drop)));
        let made = made.collect::<Result<Vec<_>>>()?;
        let Some(counts) = count_regimes(&variant, &plan, &made) else { continue };
        let unrecorded = plan.regimes.iter().filter(|(_, reach)| match reach {
            Reach::Recorded => false,
            Reach::Made(call) => made[*call].is_ok(),
        });
        let unrecorded = unrecorded.map(|(regime, _)| regime.to_string()).collect();
        RowRegimes { counts, unrecorded }.join(&mut rows);
    }
    Ok(rows)
}

/// The regimes of a variant, by what came of the planned calls; `None` if it has none.
fn count_regimes(
    variant: &Variant,
    plan: &CallPlan,
    made: &[std::result::Result<(), String>],
) -> Option<KernelRegimes> {
    let mut counts = KernelRegimes { kernel: variant.kernel.clone(), ..KernelRegimes::default() };
    for (regime, reach) in &plan.regimes {
        counts.of += 1;
        match reach {
            Reach::Recorded => counts.recorded += 1,
            Reach::Made(call) => match &made[*call] {
                Ok(()) => counts.made += 1,
                Err(reason) => {
                    let (regime, reason) = (regime.to_string(), reason.clone());
                    counts.unreached.push(Unreached { regime, reason });
                }
            },
        }
    }
    (counts.of > 0).then_some(counts)
}

/// What made calls are made of, and run with.
pub(crate) struct CallMaker<'a> {
    pub suite: &'a Suite,
    pub model: &'a Model,
    pub oracles: &'a Oracles,
    pub choices: &'a KernelChoices,
    pub stop: &'a Stop,
}

impl CallMaker<'_> {
    /// Makes and judges calls for the regimes that these cases of one operator do not reach.
    pub fn run(&self, platform: &mut dyn Platform, cases: &[Case]) -> Result<Made> {
        let mut made = Made::default();
        let source = CallSource { suite: self.suite, model: self.model, choices: self.choices };
        for variant in source.variants(cases) {
            self.variant(platform, (&source, &variant), &mut made)?;
        }
        Ok(made)
    }

    /// All planned calls of one kernel variant, made one at a time: they may be large.
    fn variant(
        &self,
        platform: &mut dyn Platform,
        (source, variant): (&CallSource<'_>, &Variant),
        made: &mut Made,
    ) -> Result<()> {
        let plan = source.plan(variant);
        let mut ran: Vec<std::result::Result<(), String>> = Vec::with_capacity(plan.calls.len());
        for planned in &plan.calls {
            self.stop.check()?;
            ran.push(match source.make(variant, planned)? {
                Ok(call) => self.try_call(platform, call, made)?,
                Err(reason) => Err(reason),
            });
        }
        // A kernel without regimes has calls of extreme rows all the same.
        if let Some(counted) = count_regimes(variant, &plan, &ran) {
            counted.join(&mut made.regimes);
        }
        Ok(())
    }

    /// Runs and judges a made call; why not, if the platform does not serve it.
    fn try_call(
        &self,
        platform: &mut dyn Platform,
        call: MadeCall,
        made: &mut Made,
    ) -> Result<std::result::Result<(), String>> {
        let mut found = None;
        platform.replay(std::slice::from_ref(&call.call), &mut |_, outputs| found = Some(outputs))?;
        let outcome = match found {
            Some(Ok(outputs)) => self.judge(&call, &outputs),
            Some(Err(e)) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => {
                return Err(e);
            }
            // The regime counts as not reached, and not as failed.
            Some(Err(e)) if e.kind() == ErrorKind::Unsupported => return Ok(Err(e.to_string())),
            Some(Err(e)) => Err(e),
            None => return Ok(Err("the platform gave no result".into())),
        };
        made.calls += 1;
        if !outcome.as_ref().is_ok_and(|judged| call.passes(judged)) {
            made.failures.push(MadeFailure { made: call, outcome });
        }
        Ok(Ok(()))
    }

    /// With the precision that the kernel declares at these sizes.
    fn judge(&self, made: &MadeCall, outputs: &[Tensor]) -> Result<Judgement> {
        check_types(&made.call, outputs)?;
        let target = self.choices.precision(made.case.node, &made.call.symbols)?;
        made.judge(&made.exact(self.oracles)?, outputs, target)
    }
}
