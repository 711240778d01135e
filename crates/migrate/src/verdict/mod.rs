//! The verdict of one node call: is the difference between what a platform computed and the exact result explained by
//! rounding? No relative or absolute tolerance is chosen anywhere; every bound follows from measured or declared facts.
//!
//! For output element `i` let `y*` be the operator in f64 on the recorded inputs, `y` what the platform gave, and
//!
//! ```text
//! allowed = R + A
//! R = 1.01 · u_s · max(|y*|, m)                              rounding to the storage dtype
//! A = u_a · (BASE + CHAIN · √L) · T  +  min(E, the same)     rounding while computing
//! T = max(D / ε, |y*|, RMS of y* and of D / ε in the row)     sensitivity
//! ```
//!
//! * `u_s`, `m`: unit roundoff and smallest normal number of the output's dtype. Below `m` the spacing of numbers is
//!   constant, so the bound is too (2⁻²⁵ for f16). WGSL lets a device flush subnormal numbers (WGSL, section 15.7.2), so
//!   for f32 and bf16 the bound is never below `m` itself.
//! * `u_a`: unit roundoff of the dtype in which the kernel declares to accumulate.
//! * `L`: terms of the longest sum. `n` additions one by one err like a random walk: with probability
//!   `1 − 2·exp(−λ²/2)` by at most `λ·√n·u·Σ|terms|` (Higham and Mary, "A New Approach to Probabilistic Rounding Error
//!   Analysis", 2019, theorem 2.4); shorter chains (tiles, trees) err less.
//! * `D`: the largest change of `y*` over [`COPIES`] evaluations in which every input that is no weight is multiplied by
//!   `1 + ε·U(−1, 1)`, with `ε` = [`AMPLITUDE`]. It measures the condition of the operator at these inputs: cancellation,
//!   the steepness of `exp`, the size of an angle. Few copies can all be small by chance (the largest of eight normal
//!   draws is below a fifth of a standard deviation for one element in three million), hence three floors, for rows in
//!   which anything moves at all: the element itself, and the row's RMS of exact values and of sensitivities. An operator
//!   that only copies gets no room.
//! * `E`: RMS, within the row, of the source platform's own error beyond `R`. A mature platform's noise is evidence of
//!   what is achievable, but at most doubles `A`, so that a faulty source cannot excuse a faulty target. A source that
//!   exceeds its own allowance is reported ([`Judgement::source_ratio`]).
//!
//! A fused operator's kernel may round the values within it to the dtypes that they have between separate nodes, or keep
//! all digits. For those of fewer digits than f32 the oracle gives `I`, the largest change over [`COPIES`] evaluations in
//! which each of them but 0 moves by `u·max(|v|, m)·U(−1, 1)`, `u` the unit roundoff of its dtype and `m` its smallest normal
//! number; [`INNER`] times the larger of `I` and its RMS in the row is added to `A`.
//!
//! Single elements cannot show a small error that all of them share. The residual against the *correctly rounded* result,
//! `r = y − round(y*)`, is zero where rounding hides the noise and one unit in the last place where the noise crosses a
//! rounding boundary, which happens with probability `A / ulp` at most. So for weights `w` a correct kernel has
//!
//! ```text
//! |Σ w r| ≤ SHARED · Σ |w| A + √(2 λ Σ w² v) + ⅔ λ max|w| (ulp + A),    v = ulp · min(A, ulp) + A²/16
//! ```
//!
//! with probability `1 − 2·exp(−λ)` (Bernstein's inequality). `w = y*` tests the scale (the slope of `y` on `y*`), `w =
//! sign` of nothing (1) the bias, `w = 1` within one column a pattern that repeats in the rows, and `Σ r²` is bounded
//! likewise. NaN and infinities must be where the exact result, rounded to the storage dtype, has them.
//!
//! An output of indices (the experts that a router chooses) is not near or far from the exact one but the same or
//! another. Any difference counts as 1, nothing is allowed but `u_a · (BASE + CHAIN · √L) · D / ε`, and the oracle gives
//! `D = min(1, ε / r)` where a relative disturbance of `r` lets another choice win: so an index is decided, and must be
//! the exact one, unless the roundings that are allowed reach the other choice. Numbers that depend on the choice have
//! the jump in their `D`. What reads an index that may go either way is judged on the recorded one.
//!
//! Integers of operators of others are right or wrong. Where a real number `v` is rounded to them (`QuantizeLinear`), all
//! integers are right that are nearest to a number in `v · (1 ± u · (BASE + CHAIN · √L))`, `u` the larger of `u_a` and the unit
//! roundoff of the coarsest input: near a tie the two neighbours. A tie in the quotient of two recorded numbers is told in every
//! precision, since a division rounds correctly (IEEE 754), and has one right integer. Where it is not known what is rounded,
//! those integers are right that a disturbed evaluation gave, at that amplitude.

mod bound;
mod distribution;
mod pattern;

pub use bound::Allowed;
pub use distribution::SumTest;
pub use pattern::Pattern;

use crate::filter::Lost;
use serde::{Deserialize, Serialize};
use tapml_graph::{DType, Error, Result, Tensor};
use tapml_reference::Oracle;
use tapml_reference::foreign::OpenIntegers;

/// Relative amplitude `ε` of the oracle's disturbances: four units of roundoff of f32.
pub const AMPLITUDE: f64 = 4.0 / 16_777_216.0;
/// Disturbed evaluations per call.
pub const COPIES: usize = 8;
/// Roundings, in units of the sensitivity, that an operator without sums may make: a few operations, functions such as
/// `exp` with their permitted error, and the luck of [`COPIES`] draws.
pub const BASE: f64 = 8.0;
/// Factor on `√L`: ten standard deviations. The error of a sum formed one by one has one of at most `0.4·√L·u·T` (each
/// rounding is uniform in half a unit of the partial sum); the largest of millions of elements lies at five of them, and
/// [`COPIES`] draws may see half of `T`.
pub const CHAIN: f64 = 4.0;
/// Factor on `I`. The largest of [`COPIES`] normal draws is 1.4 standard deviations in the mean, and the largest of ten
/// million elements lies at 5.3 of them; where few roundings decide, `I` itself is near the largest change.
pub const INNER: f64 = 4.0;
/// Share of the largest allowed error that all elements may have in common.
pub const SHARED: f64 = 0.5;
/// `λ`: a correct call fails a test on the distribution with probability below `2·exp(−20)`, 4·10⁻⁹.
pub const LAMBDA: f64 = 20.0;
/// Headroom on the rounding of the storage dtype, for the rounding of the oracle itself.
pub const STORAGE: f64 = 1.01;

/// The constants of the verdict as a set, so that a bench of faults can measure what others would decide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictConstants {
    /// See [`BASE`].
    pub base: f64,
    /// See [`CHAIN`].
    pub chain: f64,
    /// See [`SHARED`].
    pub shared: f64,
    /// See [`LAMBDA`].
    pub lambda: f64,
    /// See [`STORAGE`].
    pub storage: f64,
}

impl VerdictConstants {
    /// Those that decide.
    pub const DECIDING: VerdictConstants =
        VerdictConstants { base: BASE, chain: CHAIN, shared: SHARED, lambda: LAMBDA, storage: STORAGE };
    /// Those by which single elements decide, and no test on the distribution of errors.
    pub const ELEMENTS: VerdictConstants =
        VerdictConstants { lambda: f64::INFINITY, ..VerdictConstants::DECIDING };
}

/// What the oracle found for one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// The exact values.
    pub values: Vec<f64>,
    /// The largest change under disturbances of [`AMPLITUDE`].
    pub deviation: Vec<f64>,
    /// The largest change under roundings of the values within a fused operator; empty where there are none.
    pub inner: Vec<f64>,
    /// Elements of a row.
    pub row_len: usize,
    /// What integers of an operator of others leave open.
    pub integers: Option<OpenIntegers>,
}

impl Exact {
    /// What the oracle found for each output.
    pub fn of_outputs(found: &Oracle) -> Vec<Exact> {
        let pairs = found.exact.iter().zip(&found.deviation).enumerate();
        pairs
            .map(|(at, (exact, deviation))| Exact {
                values: exact.values().to_vec(),
                deviation: deviation.values().to_vec(),
                inner: found.inner.get(at).map(|inner| inner.values().to_vec()).unwrap_or_default(),
                row_len: exact.row_len(),
                integers: None,
            })
            .collect()
    }
}

/// What decides a verdict besides the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Dtype in which the kernel accumulates.
    pub accumulate: DType,
    /// Terms of the longest sum.
    pub terms: usize,
}

/// The test that came closest to its limit, or exceeded it most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// One element.
    Element,
    /// Another index than the exact one, where no rounding reaches it.
    Choice,
    /// NaN or infinity where the exact result has none, or none where it has one.
    NonFinite,
    /// All elements are too large or too small by one factor.
    Scale,
    /// All elements are shifted.
    Bias,
    /// The residual as a whole is too large.
    Spread,
    /// One column is shifted in all rows.
    Column,
    /// The results of many calls together show that an attribute is left out.
    Attribute,
    /// The results of many calls together show that they are cut instead of rounded to the nearest.
    Rounding,
}

impl Criterion {
    /// The criterion in plain words.
    pub fn name(self) -> &'static str {
        match self {
            Criterion::Element => "single element",
            Criterion::Choice => "another choice",
            Criterion::NonFinite => "NaN or infinity",
            Criterion::Scale => "scale of all elements",
            Criterion::Bias => "shift of all elements",
            Criterion::Spread => "size of all residuals",
            Criterion::Column => "shift of one column",
            Criterion::Attribute => "an attribute left out",
            Criterion::Rounding => "results cut instead of rounded",
        }
    }
}

/// One element with the numbers that judge it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedElement {
    /// Which output.
    pub output: usize,
    /// Index in row-major order.
    pub index: usize,
    /// The exact value.
    pub exact: f64,
    /// The platform's value.
    pub observed: f64,
    /// The allowed error.
    pub allowed: f64,
}

/// The verdict of one node call.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Observed over allowed of the criterion that decided; above 1 fails. Infinite for NaN where none belongs.
    pub ratio: f64,
    /// The criterion that decided.
    pub criterion: Criterion,
    /// Observed over allowed of the worst single element, and that element.
    pub element_ratio: f64,
    /// The worst element.
    pub worst: JudgedElement,
    /// Slope of the platform's values on the exact ones, minus 1.
    pub slope: f64,
    /// How wrong elements are spread; absent if it passed.
    pub pattern: Option<Pattern>,
    /// Observed over allowed of the source platform's recorded output; above 1 the source itself departs.
    pub source_ratio: Option<f64>,
    /// Indices that may go either way because a rounding decides them.
    pub undecided: usize,
    /// The attribute that many calls together show to be lost, where every element passes; see [`crate::filter`].
    pub lost: Option<Lost>,
    /// That a call which fails as the kernel declares would pass as sums of all terms one after the other.
    pub one_chain: Option<OneChain>,
}

/// A call that fails, judged again as if its kernel declared to add up all terms one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneChain {
    /// Terms of a sum.
    pub terms: usize,
    /// Observed over allowed error then; at most 1.
    pub ratio: f64,
}

impl OneChain {
    /// One sentence.
    pub fn text(&self) -> String {
        format!(
            "it passes as sums of {} terms one after the other ({:.2} of what these allow): a kernel that means to add so declares \
             it in its file, `// accumulate: f32 serial`",
            self.terms, self.ratio
        )
    }
}

impl Judgement {
    /// Whether the call passes.
    pub fn passes(&self) -> bool {
        self.ratio <= 1.0
    }

    /// The verdict of a call whose elements pass, after the matched filter found an attribute lost.
    pub fn with_lost_attribute(self, lost: Lost) -> Judgement {
        let pattern = Some(Pattern::of_rows(lost.rows, lost.text()));
        let ratio = lost.share / lost.least_factor();
        let criterion = if lost.is_rounding() { Criterion::Rounding } else { Criterion::Attribute };
        Judgement { ratio, criterion, pattern, lost: Some(lost), ..self }
    }
}

/// Judges the outputs of one call. `source` are the recorded outputs of the source platform with its precision.
/// Fails if the outputs' number, dtypes or shapes are not those of the exact ones.
pub fn judge(
    exact: &[Exact],
    observed: &[Tensor],
    precision: Precision,
    source: Option<(&[Tensor], Precision)>,
) -> Result<Judgement> {
    judge_with(&VerdictConstants::DECIDING, exact, observed, precision, source)
}

/// As [`judge`], with other constants than those that decide.
pub fn judge_with(
    constants: &VerdictConstants,
    exact: &[Exact],
    observed: &[Tensor],
    precision: Precision,
    source: Option<(&[Tensor], Precision)>,
) -> Result<Judgement> {
    if exact.len() != observed.len() || source.is_some_and(|(s, _)| s.len() != exact.len()) {
        return Err(Error::bug(format!("{} exact outputs, {} observed ones", exact.len(), observed.len())));
    }
    let mut worst: Option<Judgement> = None;
    for (output, (exact, observed)) in exact.iter().zip(observed).enumerate() {
        let source = source.map(|(tensors, precision)| (&tensors[output], precision));
        let mut judgement = judge_output(constants, exact, observed, precision, source)?;
        judgement.worst.output = output;
        worst = Some(match worst {
            Some(old) => worse(old, judgement),
            None => judgement,
        });
    }
    worst.ok_or_else(|| Error::bug("a call without outputs"))
}

/// What a call that fails with this precision would be as sums of `terms` terms one after the other; `None` if it fails then,
/// too, or if no longer chain than the declared one is possible.
pub fn as_one_chain(
    exact: &[Exact],
    observed: &[Tensor],
    declared: Precision,
    terms: usize,
) -> Result<Option<OneChain>> {
    // A kernel without sums has no chain, and one that declares as long a chain was judged by it.
    if declared.terms == 0 || terms <= declared.terms {
        return Ok(None);
    }
    let judged = judge(exact, observed, Precision { terms, ..declared }, None)?;
    Ok(judged.passes().then_some(OneChain { terms, ratio: judged.ratio }))
}

/// The judgement of two outputs together.
fn worse(a: Judgement, b: Judgement) -> Judgement {
    let source_ratio = a.source_ratio.into_iter().chain(b.source_ratio).reduce(f64::max);
    let undecided = a.undecided + b.undecided;
    Judgement { source_ratio, undecided, ..if a.ratio >= b.ratio { a } else { b } }
}

/// The verdict of one output.
fn judge_output(
    constants: &VerdictConstants,
    exact: &Exact,
    observed: &Tensor,
    precision: Precision,
    source: Option<(&Tensor, Precision)>,
) -> Result<Judgement> {
    let given = values(exact, observed)?;
    let dtype = observed.dtype();
    let source_values = source.map(|(tensor, _)| values(exact, tensor)).transpose()?;
    let allowed = Allowed::with_constants(constants, exact, dtype, precision, source_values.as_deref());
    // By the source's own precision, and without its own noise as an excuse.
    let source_ratio = match (source, &source_values) {
        (Some((tensor, own)), Some(values)) => {
            let allowed = Allowed::with_constants(constants, exact, tensor.dtype(), own, None);
            Some(allowed.worst_element(exact, values).0)
        }
        _ => None,
    };
    let (element_ratio, worst) = allowed.worst_element(exact, &given);
    let (mut ratio, mut criterion) = (element_ratio, Criterion::Element);
    if allowed.indices() {
        criterion = Criterion::Choice;
    } else if element_ratio.is_infinite() {
        criterion = Criterion::NonFinite;
    }
    let residual = distribution::Residual::new(exact, &given, dtype, &allowed);
    for (found, name) in residual.tests(constants) {
        // The criterion that lies farthest beyond its limit decides.
        if found > ratio {
            (ratio, criterion) = (found, name);
        }
    }
    // Only of failures: it takes another pass over the elements.
    let pattern = (ratio > 1.0).then(|| Pattern::from_failure(exact, &given, &allowed, residual.slope()));
    let (slope, undecided) = (residual.slope(), allowed.undecided_count());
    Ok(Judgement {
        ratio,
        criterion,
        element_ratio,
        worst,
        slope,
        pattern,
        source_ratio,
        undecided,
        lost: None,
        one_chain: None,
    })
}

/// A tensor's values, as many as the exact ones.
fn values(exact: &Exact, tensor: &Tensor) -> Result<Vec<f64>> {
    if tensor.len() != exact.values.len() || exact.deviation.len() != exact.values.len() {
        return Err(Error::invalid(format!(
            "expected {} values, found {}",
            exact.values.len(),
            tensor.len()
        )));
    }
    Ok(tensor.to_f64())
}

#[cfg(test)]
mod definition_tests;
#[cfg(test)]
mod integer_tests;
#[cfg(test)]
mod tests;
