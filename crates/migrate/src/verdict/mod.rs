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
mod constants;
mod criterion;
mod distribution;
mod exact;
mod judgement;
mod pattern;
mod yardstick;

pub use bound::{Allowed, JudgedElement};
pub use constants::{AMPLITUDE, BASE, CHAIN, COPIES, INNER, LAMBDA, SHARED, STORAGE, VerdictConstants};
pub use criterion::Criterion;
pub use distribution::{SumLimits, SumTest};
pub use exact::{Exact, Precision};
pub use judgement::{Judgement, OneChain};
pub use pattern::Pattern;
pub use yardstick::Yardstick;

use tapml_graph::{Error, Result, Tensor};

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
