//! Made calls: what recorded calls do not reach. A kernel works in several ways ([`Regime`]), and prompts of twenty tokens
//! know nothing of what happens behind a tile of 64 rows or 256 keys. For each regime that no recorded call of a kernel
//! reaches, a call of the same node is made at the smallest sizes that do.
//!
//! A made call has the operator, attributes, weights and types of a recorded one. Each row of an input is a recorded row of
//! it, in turn, and a cache without recorded rows takes those of another value of the same width. Every number is scaled by
//! a factor of its own between 0.75 and 1: the tests on the distribution of errors take elements for independent, and the
//! same row twice has the same errors twice. A made call is judged by the verdict that recorded calls are judged by,
//! without the noise of the source.
//!
//! Beside these, each kernel gets calls with rows that no prompt gives (`extremes.rs`), at recorded sizes. Of their
//! verdicts single elements decide, and where NaN and infinities are.

use crate::check::check_types;
use crate::choices::Choices;
use crate::extremes;
use crate::oracle::Oracles;
use crate::progress::Stop;
use crate::report::{Failure, KernelRegimes, Unreached};
use crate::suite::{Case, Suite};
use crate::verdict::{Criterion, Judgement, judge};
use std::collections::HashMap;
use tapml_exec::{Call, Phase, Platform, Regime};
use tapml_graph::{Bytes, Dim, ErrorKind, Model, Result, Symbol, Symbols, Tensor, byte_len};

/// Rows of a run at most: regimes beyond are told as not reached.
const LONGEST: u64 = 1 << 14;
/// Bytes of the inputs and outputs of a made call at most, weights not counted.
const MOST_BYTES: usize = 256 << 20;
/// What a call of rows that no prompt gives is made for.
const EXTREMES: &str = "rows of zeros, tiny and large numbers, ties, one dominant element";
/// The least factor of a number.
const LEAST: f64 = 0.75;

/// A made call that fails.
#[derive(Clone, Debug)]
pub struct MadeFailure {
    /// The recorded call that it was made of.
    pub case: Case,
    /// Name of its kernel.
    pub kernel: String,
    /// The regime for which it was made, or what is extreme of its rows.
    pub regime: String,
    /// The call.
    pub call: Call,
    /// The verdict, or why it could not be run.
    pub outcome: std::result::Result<Judgement, tapml_graph::Error>,
}

impl MadeFailure {
    /// Observed error over allowed error; infinite if the call could not be run.
    pub fn ratio(&self) -> f64 {
        self.outcome.as_ref().map_or(f64::INFINITY, |judged| judged.ratio)
    }

    /// Its name: sizes and node.
    pub fn id(&self) -> String {
        let size = |symbol| self.call.symbols.get(symbol).unwrap_or(0);
        let kind = if self.regime == EXTREMES { "extremes" } else { "made" };
        format!("{kind}.n{}.p{}.{}", size(Symbol::N), size(Symbol::P), self.call.node)
    }

    /// As reports have it.
    pub fn failure(&self) -> Failure {
        Failure::of(self.id(), self.call.node.clone(), &self.outcome)
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

/// What made calls are made of, and run with.
pub(crate) struct Maker<'a> {
    pub suite: &'a Suite,
    pub model: &'a Model,
    pub oracles: &'a Oracles,
    pub choices: &'a Choices,
    pub stop: &'a Stop,
}

/// One variant of a kernel: the same code and constants.
struct Variant {
    kernel: String,
    regimes: Vec<Regime>,
    phases: Vec<Phase>,
    cases: Vec<Case>,
}

impl Maker<'_> {
    /// Makes and judges calls for the regimes that these cases of one operator do not reach.
    pub fn run(&self, platform: &mut dyn Platform, cases: &[Case]) -> Result<Made> {
        let mut made = Made::default();
        for variant in self.variants(cases) {
            self.stop.check()?;
            self.variant(platform, &variant, &mut made)?;
            self.extremes(platform, &variant, &mut made)?;
        }
        Ok(made)
    }

    /// The variants of kernels among these cases, in their order.
    fn variants(&self, cases: &[Case]) -> Vec<Variant> {
        let mut order: Vec<Variant> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        for &case in cases {
            let phase = self.suite.phase(case);
            let Ok(choice) = self.choices.at(case.node, phase) else { continue };
            let at = *index.entry(&choice.hash).or_insert_with(|| {
                let (kernel, regimes) = (choice.name.clone(), choice.regimes.clone());
                order.push(Variant { kernel, regimes, phases: Vec::new(), cases: Vec::new() });
                order.len() - 1
            });
            let variant = &mut order[at];
            if !variant.phases.contains(&phase) {
                variant.phases.push(phase);
            }
            variant.cases.push(case);
        }
        order
    }

    fn variant(&self, platform: &mut dyn Platform, variant: &Variant, made: &mut Made) -> Result<()> {
        if variant.regimes.is_empty() {
            return Ok(());
        }
        let at = made.regimes.iter().position(|known| known.kernel == variant.kernel);
        let at = at.unwrap_or_else(|| {
            made.regimes.push(KernelRegimes { kernel: variant.kernel.clone(), ..KernelRegimes::default() });
            made.regimes.len() - 1
        });
        let mut tried: Vec<(Symbols, std::result::Result<(), String>)> = Vec::new();
        for regime in &variant.regimes {
            let Some(sizes) = regime.smallest(&variant.phases, LONGEST) else { continue };
            made.regimes[at].of += 1;
            if variant.cases.iter().any(|&case| regime.holds(self.symbols(case))) {
                made.regimes[at].recorded += 1;
                continue;
            }
            let known = tried.iter().find(|(symbols, _)| regime.holds(symbols)).map(|(_, ran)| ran.clone());
            let ran = match known {
                Some(ran) => ran,
                None => {
                    self.stop.check()?;
                    let ran = self.call(platform, variant, (regime, &sizes), made)?;
                    tried.push((sizes, ran.clone()));
                    ran
                }
            };
            match ran {
                Ok(()) => made.regimes[at].made += 1,
                Err(reason) => {
                    made.regimes[at].unreached.push(Unreached { regime: regime.to_string(), reason });
                }
            }
        }
        Ok(())
    }

    fn symbols(&self, case: Case) -> &Symbols {
        &self.suite.frames()[case.frame].symbols
    }

    /// Makes a call of these sizes and judges it; why not, if it cannot be made or run.
    fn call(
        &self,
        platform: &mut dyn Platform,
        variant: &Variant,
        (regime, sizes): (&Regime, &Symbols),
        made: &mut Made,
    ) -> Result<std::result::Result<(), String>> {
        let case = self.base(&variant.cases, sizes);
        let (recorded, outputs) = self.suite.call(case, self.model)?;
        match resized(&recorded, &outputs, sizes)? {
            Ok(call) => self.tried(platform, (case, &variant.kernel), (call, regime.to_string()), made),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Calls with rows that no prompt gives, of the recorded call with the most rows.
    fn extremes(&self, platform: &mut dyn Platform, variant: &Variant, made: &mut Made) -> Result<()> {
        let rows = |case: &&Case| self.symbols(**case).get(Symbol::N);
        let Some(&case) = variant.cases.iter().max_by_key(rows) else { return Ok(()) };
        let (recorded, _) = self.suite.call(case, self.model)?;
        for shift in 0..extremes::count(&recorded) {
            self.stop.check()?;
            let Some(call) = extremes::of(&recorded, shift)? else { break };
            // What cannot be run was told of the recorded call.
            let what = (call, EXTREMES.to_string());
            let _ran = self.tried(platform, (case, &variant.kernel), what, made)?;
        }
        Ok(())
    }

    /// Runs and judges a made call; why not, if the platform does not serve it.
    fn tried(
        &self,
        platform: &mut dyn Platform,
        (case, kernel): (Case, &str),
        (call, regime): (Call, String),
        made: &mut Made,
    ) -> Result<std::result::Result<(), String>> {
        let mut found = None;
        platform.replay(std::slice::from_ref(&call), &mut |_, outputs| found = Some(outputs))?;
        let outcome = match found {
            Some(Ok(outputs)) => self.judge(case, &call, &outputs),
            Some(Err(e)) if matches!(e.kind(), ErrorKind::DeviceLost | ErrorKind::Interrupted) => {
                return Err(e);
            }
            Some(Err(e)) if e.kind() == ErrorKind::Unsupported => return Ok(Err(e.to_string())),
            Some(Err(e)) => Err(e),
            None => return Ok(Err("the platform gave no result".into())),
        };
        made.calls += 1;
        let passed = |judged: &Judgement| judged.passed() || regime == EXTREMES && !telling(judged.criterion);
        if !outcome.as_ref().is_ok_and(passed) {
            made.failures.push(MadeFailure { case, kernel: kernel.into(), regime, call, outcome });
        }
        Ok(Ok(()))
    }

    fn judge(&self, case: Case, call: &Call, outputs: &[Tensor]) -> Result<Judgement> {
        check_types(call, outputs)?;
        let exact = self.oracles.exact(call, seed(call))?;
        judge(&exact, outputs, self.choices.precision(case.node, &call.symbols)?, None)
    }

    /// The recorded call to make one of these sizes of: with rows in its cache if there shall be some, of many rows.
    fn base(&self, cases: &[Case], sizes: &Symbols) -> Case {
        let size = |symbols: &Symbols, symbol| symbols.get(symbol).unwrap_or(0);
        let cached = size(sizes, Symbol::P) > 0;
        let score = |case: &&Case| {
            let own = self.symbols(**case);
            let (n, p) = (size(own, Symbol::N), size(own, Symbol::P));
            ((p > 0) == cached, n, p)
        };
        *cases.iter().max_by_key(score).unwrap_or(&cases[0])
    }
}

/// Whether a criterion tells of rows that no prompt gives. Tests on the distribution of errors take elements for
/// independent, and a row of ties is not; of equal scores either may win.
fn telling(criterion: Criterion) -> bool {
    matches!(criterion, Criterion::Element | Criterion::NonFinite)
}

/// Decides the disturbances of the oracle.
fn seed(call: &Call) -> u64 {
    let size = |symbol| call.symbols.get(symbol).unwrap_or(0);
    size(Symbol::N) << 32 | size(Symbol::P)
}

/// The call at other sizes, or why there is none.
pub fn resized(
    recorded: &Call,
    outputs: &[Tensor],
    sizes: &Symbols,
) -> Result<std::result::Result<Call, String>> {
    let symbols = recorded.symbols.iter().filter(|(symbol, _)| ![Symbol::N, Symbol::P].contains(symbol));
    let symbols = symbols.fold(sizes.clone(), |all, (symbol, value)| all.with(symbol, value));
    let mut shapes = Vec::new();
    for ty in recorded.input_types.iter().chain(&recorded.output_types) {
        if ty.shape.iter().skip(1).any(|dim| dim.as_const().is_none()) {
            return Ok(Err(format!("a value of {ty} has more than its rows to extend")));
        }
        shapes.push(ty.sizes(&symbols)?);
    }
    let given = recorded.weights.iter().map(Option::is_none).chain(outputs.iter().map(|_| true));
    let types = recorded.input_types.iter().chain(&recorded.output_types);
    let bytes = types.zip(&shapes).zip(given).filter(|(_, given)| *given);
    let bytes = bytes
        .map(|((ty, shape), _)| byte_len(ty.dtype, shape))
        .try_fold(0usize, |all, more| all.checked_add(more?));
    if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
        return Ok(Err(format!("a call of these sizes takes more than {} MiB", MOST_BYTES >> 20)));
    }
    let mut inputs = Vec::with_capacity(recorded.inputs.len());
    for (at, (input, shape)) in recorded.inputs.iter().zip(shapes).enumerate() {
        let fixed = recorded.input_types[at].shape.first().is_none_or(|rows: &Dim| rows.as_const().is_some());
        if fixed || recorded.weights[at].is_some() {
            inputs.push(input.clone());
            continue;
        }
        let like = |other: &&Tensor| {
            other.dtype() == input.dtype() && other.row_len() == input.row_len() && !other.is_empty()
        };
        let unweighted = recorded.inputs.iter().zip(&recorded.weights).filter(|(_, name)| name.is_none());
        let others = unweighted.map(|(tensor, _)| tensor).chain(outputs);
        let Some(rows) = std::iter::once(input).chain(others).find(like) else {
            return Ok(Err("no recorded value has rows to extend an empty cache with".into()));
        };
        inputs.push(extended(rows, shape, at as u64)?);
    }
    Ok(Ok(Call { inputs, symbols, ..recorded.clone() }))
}

/// So many rows, each one of these in turn; numbers are scaled.
fn extended(rows: &Tensor, shape: Vec<usize>, salt: u64) -> Result<Tensor> {
    let (count, width) = (shape.first().copied().unwrap_or(1), rows.row_len());
    let known = rows.len() / width.max(1);
    // Behind the last row the order begins anew, one further on.
    let from = |row: usize| (row + row / known.max(1)) % known.max(1);
    if !rows.dtype().is_float() {
        let bytes = rows.bytes();
        let each = bytes.len() / known.max(1);
        let all = (0..count).flat_map(|row| bytes[from(row) * each..][..each].iter().copied());
        return Tensor::new(rows.dtype(), shape, Bytes::new(all.collect::<Vec<u8>>()));
    }
    let values = rows.to_f64();
    let scaled = (0..count).flat_map(|row| {
        let own = &values[from(row) * width..][..width];
        own.iter().enumerate().map(move |(at, value)| value * factor(salt, (row * width + at) as u64))
    });
    Tensor::from_f64(rows.dtype(), shape, &scaled.collect::<Vec<f64>>())
}

/// A factor between [`LEAST`] and 1 for this place: the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014).
fn factor(salt: u64, place: u64) -> f64 {
    let mut bits = place.wrapping_add(salt << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    LEAST + (1.0 - LEAST) * ((bits >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{Append, Linear};
    use tapml_graph::{DType, TensorType};

    fn tensor(rows: usize, width: usize) -> Tensor {
        let values = (0..rows * width).map(|i| 1.0 + i as f32).collect();
        Tensor::from_f32(vec![rows, width], values).unwrap()
    }

    fn matrix(rows: &str, width: usize) -> TensorType {
        TensorType::new(DType::F32, [rows.parse::<Dim>().unwrap(), Dim::from(width)])
    }

    #[test]
    fn rows_are_recorded_ones_in_turn_and_no_two_are_the_same() {
        let long = extended(&tensor(3, 2), vec![7, 2], 0).unwrap();
        let values = long.to_f64();
        for (row, of) in [0, 1, 2, 1, 2, 0, 2].into_iter().enumerate() {
            for at in 0..2 {
                let share = values[row * 2 + at] / (1.0 + (of * 2 + at) as f64);
                assert!((LEAST..=1.0).contains(&share), "row {row} is of row {of}: {values:?}");
            }
        }
        let mut all: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 14);
        let ids = Tensor::from_u32(vec![2], vec![5, 9]).unwrap();
        assert_eq!(extended(&ids, vec![5], 0).unwrap().to_u32().unwrap(), [5, 9, 9, 5, 5], "as they are");
    }

    #[test]
    fn weights_stay_and_an_empty_cache_takes_rows_of_its_width() {
        let append = Call {
            node: "keep".into(),
            op: Append {}.into(),
            symbols: Symbols::np(3, 0),
            inputs: vec![tensor(0, 4), tensor(3, 4)],
            input_types: vec![matrix("p", 4), matrix("n", 4)],
            weights: vec![None, None],
            output_types: vec![matrix("n+p", 4)],
        };
        let made = resized(&append, &[tensor(3, 4)], &Symbols::np(2, 5)).unwrap().unwrap();
        assert_eq!(made.inputs.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>(), [[5, 4], [2, 4]]);
        made.check().unwrap();
        let linear = Call {
            op: Linear::default().into(),
            inputs: vec![tensor(3, 4), tensor(2, 4)],
            input_types: vec![matrix("n", 4), matrix("2", 4)],
            weights: vec![None, Some("w".into())],
            output_types: vec![matrix("n", 2)],
            ..append
        };
        let made = resized(&linear, &[tensor(3, 2)], &Symbols::np(33, 0)).unwrap().unwrap();
        assert_eq!((made.inputs[0].shape(), made.inputs[1].to_f64()), (&[33, 4][..], tensor(2, 4).to_f64()));
        made.check().unwrap();
        let huge = resized(&linear, &[tensor(3, 2)], &Symbols::np(1 << 30, 0)).unwrap();
        assert!(huge.is_err_and(|reason| reason.contains("256 MiB")));
    }
}
