//! Rounding: results cut off, results and inputs of fewer bits, small numbers taken for zero, sums in 16 bits.

use super::input::{floats, label};
use crate::Cause;
use crate::cut::numbers;
use crate::study::{Out, Prediction};
use crate::trials::{Rank, Trials};
use tapml_graph::{DType, Tensor};
use tapml_migrate::verdict::{AMPLITUDE, Exact, Precision, judge};

/// `values` rounded to nearest.
fn nearest(dtype: DType, values: &[f64]) -> Vec<f64> {
    Tensor::from_f64(dtype, vec![values.len()], values).map_or_else(|_| values.to_vec(), |t| t.to_f64())
}

/// The exact results of 16 bits, rounded towards zero.
pub(super) fn truncated(trials: &mut Trials<'_, '_>) {
    let outs = &trials.study.full.outs;
    if !outs.iter().any(|out| out.dtype.is_float() && out.dtype.size() == 2) {
        return;
    }
    let prediction: Prediction = outs.iter().map(|out| towards_zero(out.dtype, &out.exact)).collect();
    trials.full(Cause::Rounding, Rank::Named, "results are cut off, not rounded to the nearest", &prediction);
}

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
pub(super) fn narrowed(trials: &mut Trials<'_, '_>) {
    for narrow in [DType::F16, DType::BF16] {
        let outs = &trials.study.full.outs;
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
    let outs = &trials.study.full.outs;
    let whole: Prediction = outs.iter().map(|out| out.exact.iter().map(|v| v.trunc()).collect()).collect();
    if whole.iter().flatten().any(|&v| v != 0.0) {
        trials.full(Cause::WrongCast, Rank::Named, "results pass through an integer", &whole);
    }
}

/// Subnormal numbers of inputs or results taken for zero.
pub(super) fn flushed(trials: &mut Trials<'_, '_>) {
    for dtype in [DType::F32, DType::F16] {
        let flush = |v: f64| if v.abs() < dtype.min_normal() { 0.0 } else { v };
        for i in floats(trials) {
            if super::input::large(trials, i) {
                continue;
            }
            let small = numbers(&trials.study.cut.inputs[i])
                .iter()
                .any(|v| *v != 0.0 && v.abs() < dtype.min_normal());
            if small {
                let prediction = super::input::mapped(trials, i, flush);
                let note = format!(
                    "numbers of {} below the normal range of {dtype} are taken for zero",
                    label(trials, i)
                );
                trials.cut(Cause::FlushedDenormals, Rank::Named, note, prediction);
            }
        }
        let prediction: Prediction =
            trials.study.full.outs.iter().map(|out| out.exact.iter().map(|&v| flush(v)).collect()).collect();
        let note = format!("results below the normal range of {dtype} are zero");
        trials.full(Cause::FlushedDenormals, Rank::Named, note, &prediction);
    }
}

/// Where a weight multiplies the result: the product without it rounded to 16 bits first.
pub(super) fn early(trials: &mut Trials<'_, '_>) {
    for i in floats(trials) {
        if super::input::large(trials, i) {
            continue;
        }
        let weight = numbers(&trials.study.cut.inputs[i]);
        let Some(plain) = super::input::mapped(trials, i, |_| 1.0) else { continue };
        let [out] = trials.study.cut.view.outs.as_slice() else { return };
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
            let stored = vec![nearest(out.dtype, &values)];
            trials.cut(Cause::ConversionOrder, Rank::Placed, note, Some(stored));
        }
    }
}

/// Residuals of sums in 16 bits, in units of their roundoff, are about this large: less than one rounding, or more than
/// a sum one by one makes, is something else.
const RANGE: [f64; 2] = [0.02, 4.0];

/// Errors of the size and kind that sums in 16 bits make.
pub(super) fn accumulated(trials: &mut Trials<'_, '_>) {
    let Precision { accumulate, terms } = trials.study.evidence.precision;
    if terms < 2 {
        return;
    }
    for narrow in [DType::F16, DType::BF16] {
        if narrow.unit_roundoff() <= accumulate.unit_roundoff() {
            continue;
        }
        let outs = &trials.study.full.outs;
        let explained = outs.iter().map(|out| allowed(out, Precision { accumulate: narrow, terms }));
        let explained = explained.fold(1.0, f64::min);
        let size = outs.iter().map(|out| size(out, narrow)).fold(0.0, f64::max);
        if (RANGE[0]..RANGE[1] * (terms as f64).sqrt()).contains(&size) && explained > 0.99 {
            let through = outs
                .iter()
                .all(|out| out.dtype == DType::F32 && nearest(narrow, &out.observed) == out.observed);
            let note = format!(
                "errors are as large as sums of {terms} terms in {narrow} make (RMS {size:.2} roundings of {narrow} in units of \
                 the sensitivity){}",
                if through { format!(", and every result is a number of {narrow}") } else { String::new() }
            );
            trials.statistical(
                Cause::F16Accumulation,
                Rank::Descriptive,
                note,
                if through { 1.0 } else { 0.9 },
            );
        }
    }
}

/// The share of wrong elements that are right if this precision is declared.
fn allowed(out: &Out, precision: Precision) -> f64 {
    let exact = Exact { values: out.exact.clone(), deviation: out.deviation.clone(), row_len: out.width };
    let observed = Tensor::from_f64(out.dtype, vec![out.exact.len()], &out.observed);
    let Ok(judged) = observed.and_then(|o| judge(&[exact], &[o], precision, None)) else { return 0.0 };
    let wrong = out.wrong().count().max(1);
    1.0 - judged.pattern.map_or(0, |p| p.failed) as f64 / wrong as f64
}

/// RMS of the residual in units of the sensitivity, in roundoffs of `narrow`.
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
