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

mod plan;
mod sizes;

use crate::check::check_types;
use crate::choices::KernelChoices;
use crate::oracle::Oracles;
use crate::progress::Stop;
use crate::reached::{KernelRegimes, RowRegimes, Unreached};
use crate::report::Failure;
use crate::suite::{Case, Suite};
use crate::verdict::{Criterion, Exact, Judgement, Precision, VerdictConstants, judge_with};
use plan::{CallPlan, CallSource, Reach, Variant};
use std::fmt;
use tapml_exec::{Call, Platform};
use tapml_graph::{ErrorKind, Model, Result, Symbol, Tensor};

/// What a call is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A regime that no recorded call reaches.
    Regime(String),
    /// The same with inputs near zero, for operators that [rest on few rows](tapml_graph::op::Operator::is_row_dominated) of
    /// others.
    Spread(String),
    /// Rows that no prompt gives.
    Extremes,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purpose::Regime(regime) => f.write_str(regime),
            Purpose::Spread(regime) => write!(f, "{regime}, small numbers"),
            Purpose::Extremes => {
                f.write_str("rows of zeros, tiny and large numbers, ties, one dominant element")
            }
        }
    }
}

/// A call of a recorded node with values that no run had.
#[derive(Clone, Debug)]
pub struct MadeCall {
    /// The recorded call that it was made of.
    pub case: Case,
    /// Name of its kernel.
    pub kernel: String,
    /// What it was made for.
    pub purpose: Purpose,
    /// The call.
    pub call: Call,
}

impl MadeCall {
    /// Its name: sizes and node.
    pub fn id(&self) -> String {
        let size = |symbol| self.call.symbols.get(symbol).unwrap_or(0);
        let kind = match self.purpose {
            Purpose::Regime(_) => "made",
            Purpose::Spread(_) => "spread",
            Purpose::Extremes => "extremes",
        };
        format!("{kind}.n{}.p{}.{}", size(Symbol::N), size(Symbol::P), self.call.node)
    }

    /// The exact results.
    pub fn exact(&self, oracles: &Oracles) -> Result<Vec<Exact>> {
        // Sizes decide the disturbances.
        let size = |symbol| self.call.symbols.get(symbol).unwrap_or(0);
        oracles.exact(&self.call, size(Symbol::N) << 32 | size(Symbol::P))
    }

    /// The verdict of a kernel's outputs.
    pub fn judge(&self, exact: &[Exact], outputs: &[Tensor], target: Precision) -> Result<Judgement> {
        check_types(&self.call, outputs)?;
        // Tests on the distribution of errors take elements for independent, and rows that no prompt gives have ties.
        let constants = match self.purpose {
            Purpose::Regime(_) | Purpose::Spread(_) => &VerdictConstants::DECIDING,
            Purpose::Extremes => &VerdictConstants::ELEMENTS,
        };
        judge_with(constants, exact, outputs, target, None)
    }

    /// Whether the call is right by its verdict. Of rows that no prompt gives another choice than the exact one is wrong if no
    /// rounding reaches it.
    pub fn passes(&self, judged: &Judgement) -> bool {
        let undecided = judged.criterion == Criterion::Choice && judged.worst.allowed > 0.0;
        judged.passes() || self.purpose == Purpose::Extremes && undecided
    }
}

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

/// The call with other values in its inputs that are no weights, where `change` gives some; `None` if it gives none.
pub(crate) fn with_inputs(
    call: &Call,
    mut change: impl FnMut(usize, &Tensor) -> Result<Option<Tensor>>,
) -> Result<Option<Call>> {
    let mut inputs = call.inputs.clone();
    let mut changed = false;
    let own = call.inputs.iter().zip(&call.weights).enumerate().filter(|(_, (_, weight))| weight.is_none());
    for (at, (input, _)) in own {
        if let Some(other) = change(at, input)? {
            inputs[at] = other;
            changed = true;
        }
    }
    Ok(changed.then(|| Call { inputs, ..call.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::Argmax;
    use tapml_graph::{DType, Dim, NodeId, Symbols, TensorType};

    #[test]
    fn the_greatest_of_a_row_of_ties_is_the_first() {
        let vector = |rows: &str| TensorType::new(DType::U32, [rows.parse::<Dim>().unwrap()]);
        let logits = TensorType::new(DType::F32, [Dim::from(1usize), Dim::from(3usize)]);
        let call = Call {
            node: "next_token".into(),
            op: Argmax {}.into(),
            symbols: Symbols::np(1, 0),
            inputs: vec![
                Tensor::from_u32(vec![0], Vec::new()).unwrap(),
                Tensor::from_f32(vec![1, 3], vec![2.0; 3]).unwrap(),
            ],
            input_types: vec![vector("p"), logits],
            weights: vec![None, None],
            output_types: vec![vector("n+p"), vector("1")],
        };
        let case = Case { frame: 0, node: NodeId(0) };
        let made = MadeCall { case, kernel: "argmax/portable".into(), purpose: Purpose::Extremes, call };
        let exact = made.exact(&Oracles::new(0)).unwrap();
        let passes = |index: u32| {
            let chosen = Tensor::from_u32(vec![1], vec![index]).unwrap();
            let target = Precision { accumulate: DType::F32, terms: 0 };
            made.passes(&made.judge(&exact, &[chosen.clone(), chosen], target).unwrap())
        };
        assert_eq!([0, 1, 2].map(passes), [true, false, false]);
    }
}
