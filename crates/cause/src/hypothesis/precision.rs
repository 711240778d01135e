//! Rounding: results cut off, results and inputs of fewer bits, small numbers taken for zero, sums in 16 bits.
//!
//! Rounding of results can be predicted. Rounding within sums cannot, so it is judged by the size of the errors and by their last bits.

use super::input::{floats, label};
use crate::Cause;
use crate::cut::numbers;
use crate::output_view::{Out, Prediction};
use crate::trials::{Rank, Trials};
use tapml_graph::{DType, Tensor};
use tapml_migrate::terms;
use tapml_migrate::verdict::{AMPLITUDE, Exact, OneChain, Precision, as_one_chain, judge};

/// `values` rounded to nearest.
/// Values stay as they are if no tensor of the dtype can be made of them.
fn nearest(dtype: DType, values: &[f64]) -> Vec<f64> {
    Tensor::from_f64(dtype, vec![values.len()], values).map_or_else(|_| values.to_vec(), |t| t.to_f64())
}

/// The exact results of 16 bits, rounded towards zero.
/// Only outputs of 16 bits are tried.
pub(super) fn try_truncated(trials: &mut Trials<'_, '_>) {
    let outs = &trials.context.full.outs;
    if !outs.iter().any(|out| out.dtype.is_float() && out.dtype.size() == 2) {
        return;
    }
    let prediction: Prediction = outs.iter().map(|out| towards_zero(out.dtype, &out.exact)).collect();
    trials.full(Cause::Rounding, Rank::Named, "results are cut off, not rounded to the nearest", &prediction);
}

/// Each value cut off to the dtype; those that are exact in it stay.
fn towards_zero(dtype: DType, values: &[f64]) -> Vec<f64> {
    let near = nearest(dtype, values);
    let smaller = near
        .iter()
        .zip(values)
        .map(|(n, v)| if n.abs() > v.abs() { n * (1.0 - dtype.unit_roundoff()) } else { *n });
    // A little below a value of the type, rounded to nearest, is the value before it or itself: go on until below.
    let mut cut: Vec<f64> = smaller.collect();
    for ((c, n), v) in cut.iter_mut().zip(&near).zip(values) {
        if n.abs() > v.abs() {
            *c = nearest(dtype, &[n * (1.0 - 1.5 * dtype.unit_roundoff())])[0];
        }
    }
    cut
}

/// Results that pass through a narrower type.
pub(super) fn try_narrowed(trials: &mut Trials<'_, '_>) {
    for narrow in [DType::F16, DType::BF16] {
        let outs = &trials.context.full.outs;
        if outs.iter().any(|out| !out.dtype.is_float() || out.dtype == narrow) {
            continue;
        }
        let prediction: Prediction = outs.iter().map(|out| nearest(narrow, &out.exact)).collect();
        trials.full(
            Cause::WrongCast,
            Rank::Named,
            format!("results are rounded to {narrow} on their way"),
            &prediction,
        );
    }
    let outs = &trials.context.full.outs;
    // All zeros would fit too many faults.
    let whole: Prediction = outs.iter().map(|out| out.exact.iter().map(|v| v.trunc()).collect()).collect();
    if whole.iter().flatten().any(|&v| v != 0.0) {
        trials.full(Cause::WrongCast, Rank::Named, "results pass through an integer", &whole);
    }
}

/// Subnormal numbers of inputs or results taken for zero.
/// Types are tried apart, because the subnormal numbers of f16 are normal ones of f32.
pub(super) fn try_flushed(trials: &mut Trials<'_, '_>) {
    for dtype in [DType::F32, DType::F16] {
        let flush = |v: f64| if v.abs() < dtype.min_normal() { 0.0 } else { v };
        for i in floats(trials) {
            if super::input::large(trials, i) {
                continue;
            }
            let small = numbers(&trials.context.cut.inputs[i])
                .iter()
                .any(|v| *v != 0.0 && v.abs() < dtype.min_normal());
            if small {
                let prediction = super::input::predict_mapped(trials, i, flush);
                let note = format!(
                    "numbers of {} below the normal range of {dtype} are taken for zero",
                    label(trials, i)
                );
                trials.cut(Cause::FlushedDenormals, Rank::Named, note, prediction);
            }
        }
        let prediction: Prediction = trials
            .context
            .full
            .outs
            .iter()
            .map(|out| out.exact.iter().map(|&v| flush(v)).collect())
            .collect();
        let note = format!("results below the normal range of {dtype} are zero");
        trials.full(Cause::FlushedDenormals, Rank::Named, note, &prediction);
    }
}

/// Where a weight multiplies the result: the product without it rounded to 16 bits first.
/// Whether a weight multiplies is found out by evaluating without it.
pub(super) fn try_early_rounding(trials: &mut Trials<'_, '_>) {
    for i in floats(trials) {
        if super::input::large(trials, i) {
            continue;
        }
        let weight = numbers(&trials.context.cut.inputs[i]);
        let Some(plain) = super::input::predict_mapped(trials, i, |_| 1.0) else { continue };
        let [out] = trials.context.cut.view.outs.as_slice() else { return };
        let multiplies = |at: usize| {
            let product = plain[0][at] * weight[at % weight.len()];
            (product - out.exact[at]).abs() <= 1e-9 * product.abs()
        };
        if weight.len() != out.width || !(0..out.exact.len()).all(multiplies) {
            continue;
        }
        for dtype in [DType::F16, DType::BF16] {
            let values = nearest(dtype, &plain[0]).into_iter().enumerate();
            let values: Vec<f64> = values.map(|(at, v)| v * weight[at % weight.len()]).collect();
            let note =
                format!("the result is rounded to {dtype} before it is multiplied by {}", label(trials, i));
            trials.cut(Cause::ConversionOrder, Rank::Placed, note.clone(), Some(vec![values.clone()]));
            // The platform may round the product once more when it stores it.
            let stored = vec![nearest(out.dtype, &values)];
            trials.cut(Cause::ConversionOrder, Rank::Placed, note, Some(stored));
        }
    }
}

/// Sums of all terms one after the other, where the kernel declares shorter chains.
/// The bound on such a sum is that of the verdict, with all terms in one chain.
pub(super) fn one_chain(trials: &mut Trials<'_, '_>) {
    let evidence = trials.context.evidence;
    let terms = terms(evidence.call);
    let mut worst: Option<OneChain> = None;
    for observed in evidence.observed {
        // Every repeat must be explained.
        let Ok(Some(chain)) = as_one_chain(evidence.exact, observed, evidence.precision, terms) else {
            return;
        };
        worst = Some(match worst {
            Some(old) if old.ratio >= chain.ratio => old,
            _ => chain,
        });
    }
    if let Some(chain) = worst {
        trials.statistical(Cause::LongSum, Rank::Fitted, chain.text(), 1.0);
    }
}

/// Residuals of sums in 16 bits, in units of their roundoff, are about this large: less than one rounding, or more than
/// a sum one by one makes, is something else.
/// The upper bound grows with the root of the number of terms, as errors of a sum do.
const RANGE: [f64; 2] = [0.02, 4.0];

/// Errors of the size and kind that sums in 16 bits make. Many faults make errors of that size: the cause is named only if
/// the results are, but for a bias, numbers of the narrow type, as sums in it are.
pub(super) fn try_accumulated(trials: &mut Trials<'_, '_>) {
    let Precision { accumulate, terms } = trials.context.evidence.precision;
    if terms < 2 {
        return;
    }
    for narrow in [DType::F16, DType::BF16] {
        // The kernel declares sums in this type or a narrower one.
        if narrow.unit_roundoff() <= accumulate.unit_roundoff() {
            continue;
        }
        let outs = &trials.context.full.outs;
        let explained = outs.iter().map(|out| allowed_share(out, Precision { accumulate: narrow, terms }));
        let explained = explained.fold(1.0, f64::min);
        // The output that is off most decides the size.
        let size = outs.iter().map(|out| size(out, narrow)).fold(0.0, f64::max);
        if !(RANGE[0]..RANGE[1] * (terms as f64).sqrt()).contains(&size) || explained <= 0.99 {
            continue;
        }
        let sizes = format!(
            "errors are as large as sums of {terms} terms in {narrow} make (RMS {size:.2} roundings of {narrow} in units of the \
             sensitivity)"
        );
        let narrowed = outs.iter().map(|out| narrowed_sums(trials, out, narrow)).reduce(Narrowed::weaker);
        match narrowed.unwrap_or(Narrowed::No) {
            Narrowed::Sums => {
                let note = format!(
                    "{sizes}, and the wrong results are numbers of {narrow}, or sums of a few, but for a bias"
                );
                trials.statistical(Cause::F16Accumulation, Rank::Descriptive, note, 1.0);
            }
            Narrowed::Rounded => {
                let note =
                    format!("the wrong results are the exact ones rounded once to {narrow}, but for a bias");
                trials.statistical(Cause::ConversionOrder, Rank::Descriptive, note, 1.0);
            }
            Narrowed::No => trials.add_guess(Cause::F16Accumulation, sizes, GUESS),
        }
    }
}

/// More than what is likely from correlation, less than a prediction.
const GUESS: f64 = 0.25;
/// Elements that must be numbers of the narrow type, and their share: one in a thousand is by chance.
const NARROW: (usize, f64) = (16, 0.95);

/// What results, but for a bias, show of a narrow type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Narrowed {
    /// They are numbers of it, by more than one rounding from the exact ones.
    Sums,
    /// They are the exact ones, rounded once.
    Rounded,
    No,
}

impl Narrowed {
    /// Of two outputs the one that shows less.
    /// Different findings cancel out: one cause must explain all outputs.
    fn weaker(self, other: Narrowed) -> Narrowed {
        if self == other { self } else { Narrowed::No }
    }
}

/// Whether the results of an output of f32 are numbers of a narrow type, or such numbers plus a bias.
/// Outputs of 16 bits are numbers of that type anyhow, so nothing can be told from them.
fn narrowed_sums(trials: &Trials<'_, '_>, out: &Out, narrow: DType) -> Narrowed {
    if out.dtype != DType::F32 {
        return Narrowed::No;
    }
    // An input with one value per column may be a bias, which is added in f32.
    let vectors =
        trials.context.evidence.call.inputs.iter().filter(|t| t.dtype().is_float() && t.len() == out.width);
    let biases = std::iter::once(vec![0.0; out.width]).chain(vectors.map(Tensor::to_f64));
    let found = biases.map(|bias| narrow_with_bias(out, &bias, narrow)).find(|found| *found != Narrowed::No);
    found.unwrap_or(if coarse(out) { Narrowed::Sums } else { Narrowed::No })
}

/// Bits at the end of an f32 that are zero in few sums of f32, and in nearly all sums of numbers of 16 bits.
/// A sum of f32 has three such zeros by chance in one of eight cases.
const COARSE: u32 = 3;

/// Whether the wrong results are sums of a few numbers of 16 bits, as partial sums are: their last bits are zero, which those
/// of the exact results are not.
/// Neither the bias nor the number of terms needs to be known for this.
fn coarse(out: &Out) -> bool {
    let even = |value: f64| (value as f32).to_bits().trailing_zeros() >= COARSE;
    let finite = || out.wrong().filter(|&i| out.observed[i].is_finite() && out.observed[i] != 0.0);
    let (all, found) = (finite().count(), finite().filter(|&i| even(out.observed[i])).count());
    let exact = finite().filter(|&i| even(out.exact[i])).count();
    all >= NARROW.0 && found as f64 >= NARROW.1 * all as f64 && 2 * exact < all
}

/// Counts results that are numbers of the type when the bias is taken away.
fn narrow_with_bias(out: &Out, bias: &[f64], narrow: DType) -> Narrowed {
    let (mut all, mut near, mut once) = (0, 0, 0);
    for i in out.wrong() {
        let observed = out.observed[i];
        let added = bias[i % out.width];
        let (sum, exact) = (observed - added, out.exact[i] - added);
        let scale = observed.abs().max(added.abs());
        // Beside a large bias every sum looks like a number of the type.
        if !sum.is_finite() || sum == 0.0 || scale > 32.0 * sum.abs() {
            continue;
        }
        all += 1;
        // Adding the bias rounds to f32, and so does taking it away.
        let slack = scale * 2.0 * DType::F32.unit_roundoff();
        near += usize::from((sum - nearest(narrow, &[sum])[0]).abs() <= slack);
        once += usize::from((sum - nearest(narrow, &[exact])[0]).abs() <= slack);
    }
    let enough = |count: usize| all >= NARROW.0 && count as f64 >= NARROW.1 * all as f64;
    if enough(once) {
        Narrowed::Rounded
    } else if enough(near) {
        Narrowed::Sums
    } else {
        Narrowed::No
    }
}

/// The share of wrong elements that are right if this precision is declared.
/// Counts by the verdict itself, with the deviations of the exact result.
fn allowed_share(out: &Out, precision: Precision) -> f64 {
    let (values, deviation) = (out.exact.clone(), out.deviation.clone());
    let exact = Exact { values, deviation, inner: Vec::new(), row_len: out.width, integers: None };
    let observed = Tensor::from_f64(out.dtype, vec![out.exact.len()], &out.observed);
    let Ok(judged) = observed.and_then(|o| judge(&[exact], &[o], precision, None)) else { return 0.0 };
    let wrong = out.wrong().count().max(1);
    1.0 - judged.pattern.map_or(0, |p| p.failed) as f64 / wrong as f64
}

/// RMS of the residual in units of the sensitivity, in roundoffs of `narrow`.
/// Elements that are wrong by infinity or have no sensitivity are left out.
fn size(out: &Out, narrow: DType) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for i in 0..out.exact.len() {
        let sensitivity = (out.deviation[i] / AMPLITUDE).max(out.exact[i].abs());
        let residual = out.observed[i] - out.exact[i];
        if sensitivity > 0.0 && residual.is_finite() && sensitivity.is_finite() {
            sum += (residual / sensitivity).powi(2);
            count += 1;
        }
    }
    (sum / f64::from(count.max(1))).sqrt() / narrow.unit_roundoff()
}
