//! How well a prediction explains what was observed.
//!
//! A prediction takes the place of the exact result. What was observed must then lie within the allowance of the verdict, element by
//! element, and as a whole.

use crate::output_view::{Out, OutputView, Prediction};
use tapml_graph::{DType, Tensor};
use tapml_migrate::verdict::{Exact, Precision, STORAGE, judge};

/// How well a prediction explains what was observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score {
    /// Of the elements that are wrong by the exact result or by the prediction, the share that the prediction explains.
    pub fit: f64,
    /// The verdict's ratio with the prediction in place of the exact result; infinite unless nearly all elements fit.
    pub ratio: f64,
}

impl Score {
    /// The score of a hypothesis that could not be tested.
    pub const NONE: Score = Score { fit: 0.0, ratio: f64::INFINITY };

    /// Whether it explains every element within the allowance.
    pub fn fits(&self) -> bool {
        self.fit >= 1.0 && self.ratio <= 1.0
    }
}

/// A prediction whose probes fit worse is not looked at any further.
/// Probes are a sample, so the bound is far below what is named.
const HOPELESS: f64 = 0.3;
/// A prediction that explains so much is judged like an exact result.
/// The verdict looks at distributions too, which takes longer than counting elements.
const JUDGED: f64 = 0.98;

/// The score of a prediction for all outputs of a view.
/// Probes first, then all elements, then the verdict: most predictions are rejected by few elements.
pub(crate) fn score(view: &OutputView, prediction: &Prediction, precision: Precision) -> Score {
    if view.wrong() == 0 {
        return subtle(view, prediction, precision);
    }
    // A prediction with larger rows has larger rounding errors.
    let factors: Vec<Vec<f64>> = view.outs.iter().zip(prediction).map(|(out, p)| growth(out, p)).collect();
    let mut probed = Count::default();
    for (((out, values), probes), factors) in view.outs.iter().zip(prediction).zip(&view.probes).zip(&factors)
    {
        probes.iter().for_each(|&i| probed.add(out, i, values[i], factors[i / out.width]));
    }
    if probed.fit() < HOPELESS {
        return Score { fit: probed.fit(), ratio: f64::INFINITY };
    }
    let mut count = Count::default();
    for ((out, values), factors) in view.outs.iter().zip(prediction).zip(&factors) {
        for (i, &value) in values.iter().enumerate() {
            count.add(out, i, value, factors[i / out.width]);
        }
    }
    let fit = count.fit().max(of_one_output(view, prediction, &factors));
    let ratio = if fit >= JUDGED { verdict_ratio(view, prediction, precision) } else { f64::INFINITY };
    Score { fit, ratio }
}

/// A prediction that explains all of one output, but not of another, is right about part of a fused operator.
const ONE_OUTPUT: f64 = 0.9;

/// The fit of a prediction that is right about one output of several; 0 if it is right about none or there is only one.
fn of_one_output(view: &OutputView, prediction: &Prediction, factors: &[Vec<f64>]) -> f64 {
    let outs = view.outs.iter().zip(prediction).zip(factors);
    let explained = outs.map(|((out, values), factors)| {
        let fits = |(i, &v): (usize, &f64)| ratio(out, i, v, factors[i / out.width]) <= 1.0;
        // With fewer wrong elements an output may be explained by chance.
        out.wrong().count() >= 6 && values.iter().enumerate().all(fits)
    });
    let explained: Vec<bool> = explained.collect();
    if explained.len() > 1 && explained.contains(&true) { ONE_OUTPUT } else { 0.0 }
}

/// Fewer wrong elements are explained by too many predictions.
const PART: usize = 12;

/// Whether a prediction explains every wrong element, and just not the right ones: a defect in one of the ways that a kernel
/// goes, such as the second of two stores.
/// The right ones are not looked at here; the caller knows from the score that they do not fit.
pub(crate) fn explains_wrong(view: &OutputView, prediction: &Prediction) -> bool {
    let fits = |out: &Out, values: &[f64], i: usize| ratio(out, i, values[i], 1.0) <= 1.0;
    let outs = || view.outs.iter().zip(prediction);
    let wrong = outs().map(|(out, _)| out.wrong().count()).sum::<usize>();
    wrong >= PART && outs().all(|(out, values)| out.wrong().all(|i| fits(out, values, i)))
}

/// The squared error of a prediction in units of what is allowed, over the probes; each element counts at most
/// [`LOSS_CAP`], so that few elements that are wrong for another reason do not decide.
/// Squares make a search prefer a prediction that is a little off everywhere to one that is far off somewhere.
pub(crate) fn loss(view: &OutputView, prediction: &Prediction) -> f64 {
    let mut sum = 0.0;
    for ((out, values), probes) in view.outs.iter().zip(prediction).zip(&view.probes) {
        for &i in probes {
            let ratio = ratio(out, i, values[i], 1.0);
            sum += ratio.min(LOSS_CAP).powi(2);
        }
    }
    sum
}

/// A ratio above it counts as this much, as do NaN and infinity.
const LOSS_CAP: f64 = 1e7;

/// Elements that are wrong by one of the two, and those that the prediction explains.
#[derive(Default)]
struct Count {
    /// Elements that are wrong by the exact result or by the prediction.
    either: usize,
    /// Those of them that the prediction explains.
    explained: usize,
}

impl Count {
    /// Counts one element; those that are right by both say nothing.
    fn add(&mut self, out: &Out, i: usize, predicted: f64, factor: f64) {
        let fits = ratio(out, i, predicted, factor) <= 1.0;
        if out.is_wrong(i) || !fits {
            self.either += 1;
            self.explained += usize::from(fits);
        }
    }

    /// The share that is explained; 0 if nothing is wrong.
    fn fit(&self) -> f64 {
        if self.either == 0 { 0.0 } else { self.explained as f64 / self.either as f64 }
    }
}

/// How much larger the predicted rows are than the exact ones; never below 1. Errors grow as rows do.
fn growth(out: &Out, predicted: &[f64]) -> Vec<f64> {
    // Values that are not finite would hide the size of the others.
    let square = |row: &[f64]| row.iter().filter(|v| v.is_finite()).map(|v| v * v).sum::<f64>();
    let rows = out.exact.chunks(out.width).zip(predicted.chunks(out.width));
    rows.map(|(exact, predicted)| {
        let (exact, predicted) = (square(exact), square(predicted));
        // The upper bound keeps a prediction that explodes from explaining anything by its allowance.
        if exact > 0.0 { (predicted / exact).sqrt().clamp(1.0, 1e6) } else { 1.0 }
    })
    .collect()
}

/// Observed over allowed error of element `i` if the prediction were right.
///
/// As the verdict's, with one bound for storage and one for computing. `factor` is what [`growth`] gives for the row.
/// Values that are not finite must be equal in kind: NaN for NaN, infinity of the same sign for infinity.
pub(crate) fn ratio(out: &Out, i: usize, predicted: f64, factor: f64) -> f64 {
    let observed = out.observed[i];
    if !out.dtype.is_float() {
        // Integers are right or wrong. A choice that the oracle finds close has a larger allowance, so its ratio is smaller.
        return if observed == predicted { 0.0 } else { out.computing[i].max(1e-30).recip() };
    }
    if !observed.is_finite() || !predicted.is_finite() {
        let largest = largest(out.dtype);
        // A prediction beyond the largest number of the type is stored as infinity.
        let beyond = observed.is_infinite() && predicted * observed.signum() > largest * 0.999;
        let same = observed == predicted || (observed.is_nan() && predicted.is_nan()) || beyond;
        return if same { 0.0 } else { f64::INFINITY };
    }
    let error = (observed - predicted).abs();
    if error == 0.0 {
        return 0.0;
    }
    let mut storage = STORAGE * out.dtype.unit_roundoff() * predicted.abs().max(out.dtype.min_normal());
    // Devices may flush subnormal results to zero, which the verdict allows.
    if matches!(out.dtype, DType::F32 | DType::BF16) && predicted.abs() < 2.0 * out.dtype.min_normal() {
        storage = storage.max(out.dtype.min_normal());
    }
    error / (storage + factor * out.computing[i])
}

/// The largest finite number.
/// Of bf16 that of f32 is taken, which is 0.4 % larger.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    }
}

/// The verdict's ratio if the prediction were the exact result.
/// The deviations of the exact result are kept, grown as the rows are, because a prediction has none of its own.
fn verdict_ratio(view: &OutputView, prediction: &Prediction, precision: Precision) -> f64 {
    let mut worst = 0.0f64;
    for (out, values) in view.outs.iter().zip(prediction) {
        let factors = growth(out, values);
        let deviation = out.deviation.iter().enumerate().map(|(i, d)| d * factors[i / out.width]).collect();
        let exact = Exact {
            values: values.clone(),
            deviation,
            inner: Vec::new(),
            row_len: out.width,
            integers: None,
        };
        let observed = Tensor::from_f64(out.dtype, vec![values.len()], &out.observed);
        let judged = observed.and_then(|o| judge(std::slice::from_ref(&exact), &[o], precision, None));
        worst = worst.max(judged.map_or(f64::INFINITY, |j| j.ratio));
    }
    worst
}

/// Where no single element is wrong: the share of the squared residual that the prediction explains.
///
/// Such a call fails only on what all elements share, such as a mean that is shifted.
fn subtle(view: &OutputView, prediction: &Prediction, precision: Precision) -> Score {
    let (mut before, mut after) = (0.0, 0.0);
    for (out, values) in view.outs.iter().zip(prediction) {
        for (i, &value) in values.iter().enumerate() {
            let (old, new) = (out.observed[i] - out.exact[i], out.observed[i] - value);
            if old.is_finite() && new.is_finite() && out.computing[i] > 0.0 {
                before += (old / out.computing[i]).powi(2);
                after += (new / out.computing[i]).powi(2);
            }
        }
    }
    let fit = if before > 0.0 { (1.0 - after / before).max(0.0) } else { 0.0 };
    // Noise alone explains a little of itself.
    if fit < 0.2 {
        return Score { fit, ratio: f64::INFINITY };
    }
    let ratio = verdict_ratio(view, prediction, precision);
    Score { fit: if ratio <= 1.0 { 1.0 } else { fit.min(0.9) }, ratio }
}
