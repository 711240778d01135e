//! Numbers found by search: the value of an attribute, a factor on an input.
//!
//! The loss has many flat places, so a grid of powers comes first and a search between its points second.

use super::attribute::{get, meaning, paths, with_attribute};
use super::input::{floats, label, large, predict_mapped};
use crate::Cause;
use crate::fit::loss;
use crate::output_view::Prediction;
use crate::trials::{Rank, Trials};
use crate::words::{factor, number};
use serde_json::{Value, json};
use tapml_graph::Op;

/// Steps of the search between two points of the grid.
/// Each one shrinks the interval by 0.618, together by a factor of about 270 000.
const REFINED: usize = 26;
/// A point of the grid must explain this share of the loss to be looked at more closely.
const WORTH: f64 = 0.7;

/// The value of an attribute that explains most.
/// Only floats are searched. Lists of numbers are searched as a whole.
pub(super) fn attributes(trials: &mut Trials<'_, '_>) {
    // A search finds something nearly always; it is not needed beside an exact hypothesis.
    if trials.is_settled() {
        return;
    }
    let op = trials.context.cut.op.clone();
    let inputs = trials.context.cut.inputs.clone();
    let attributes = op.attributes();
    for path in paths(&attributes) {
        of_list(trials, &op, &path, get(&attributes, &path));
        let Some(own) = get(&attributes, &path).filter(|v| v.is_f64()).and_then(|v| v.as_f64()) else {
            continue;
        };
        // A zero has no multiples.
        let unit = if own == 0.0 { 1.0 } else { own };
        let found = search(trials, |trials, factor| {
            with_attribute(&op, &path, Some(json!(unit * factor))).and_then(|op| trials.eval(&op, &inputs))
        });
        if let Some((best, prediction)) = found {
            let (_, cause) = meaning(&op, &path);
            let note = format!(
                "`{}` is about {}, where the operator says {}",
                path.join("."),
                number(unit * best),
                number(own)
            );
            trials.cut(cause, Rank::Fitted, note, Some(prediction));
        }
    }
}

/// A list of numbers that grows or shrinks along its length, as frequencies of another base do.
/// Only the base of the growth is searched, so that one number stands for the whole list.
fn of_list(trials: &mut Trials<'_, '_>, op: &Op, path: &[String], value: Option<&Value>) {
    let numbers: Vec<f64> =
        value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_f64).collect();
    if numbers.len() < 2 {
        return;
    }
    let inputs = trials.context.cut.inputs.clone();
    let count = numbers.len() as f64;
    let found = search(trials, |trials, ratio| {
        let grown = numbers.iter().enumerate().map(|(j, v)| v * ratio.powf(j as f64 / count));
        with_attribute(op, path, Some(json!(grown.collect::<Vec<f64>>())))
            .and_then(|op| trials.eval(&op, &inputs))
    });
    if let Some((ratio, prediction)) = found {
        let name = path.join(".");
        let note =
            format!("value j of {count} of `{name}` is taken times {} to the power j/{count}", number(ratio));
        trials.cut(Cause::WrongConstant, Rank::Fitted, note, Some(prediction));
    }
}

/// A factor on one input.
/// An input whose factor is one of the result is left to `output`.
pub(super) fn inputs(trials: &mut Trials<'_, '_>) {
    if trials.is_settled() {
        return;
    }
    for i in floats(trials).into_iter().filter(|&i| !large(trials, i)).collect::<Vec<_>>() {
        // What scales the result as a whole is found there.
        let doubled = predict_mapped(trials, i, |v| 2.0 * v);
        if doubled.is_none_or(|p| proportional(trials, &p)) {
            continue;
        }
        let found = search(trials, |trials, factor| predict_mapped(trials, i, |v| v * factor));
        if let Some((best, prediction)) = found {
            let note = format!("{} is taken times {}", label(trials, i), factor(best));
            trials.cut(Cause::WrongScale, Rank::Fitted, note, Some(prediction));
        }
    }
}

/// Whether a prediction is twice the exact result, or the exact result.
/// Then the factor of the input cannot be told from one of the result, or it does not matter.
fn proportional(trials: &Trials<'_, '_>, prediction: &Prediction) -> bool {
    let outs = trials.context.cut.view.outs.iter().zip(prediction);
    let is = |factor: f64| {
        outs.clone()
            .all(|(out, p)| out.exact.iter().zip(p).all(|(e, p)| (p - factor * e).abs() <= 1e-9 * e.abs()))
    };
    is(2.0) || is(1.0)
}

/// The factor with the least loss and what it predicts; `None` if none explains much.
///
/// The grid has powers of two from 1/8 to 8 and powers of ten from 1e-7 to 1e7. Where no point of it explains much, factors close to
/// 1 are tried, because the right one may lie between two points.
fn search<'s, 'a>(
    trials: &mut Trials<'s, 'a>,
    predict: impl Fn(&mut Trials<'s, 'a>, f64) -> Option<Prediction>,
) -> Option<(f64, Prediction)> {
    let view = &trials.context.cut.view;
    let start = loss(view, &view.exact());
    // The search is over the exponent of two, so that both directions are alike.
    let mut at =
        |exponent: f64| -> f64 { predict(trials, exponent.exp2()).map_or(f64::INFINITY, |p| loss(view, &p)) };
    // Close to 1 by powers of two, then by decades.
    let mut grid: Vec<f64> = (-3..=3).map(f64::from).collect();
    grid.extend((1..=7).flat_map(|k| [f64::from(k) * 10f64.log2(), -f64::from(k) * 10f64.log2()]));
    grid.sort_by(f64::total_cmp);
    let losses: Vec<f64> = grid.iter().map(|&g| at(g)).collect();
    let best = (0..grid.len()).min_by(|&a, &b| losses[a].total_cmp(&losses[b]))?;
    if losses[best] > WORTH * start {
        // The right factor may lie close to 1, between points of the grid.
        let near = [-0.3, -0.1, -0.01, 0.01, 0.1, 0.3].map(|e: f64| (e, at(e)));
        let (e, l) = near.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        // No factor is better than the exact result.
        if l >= start {
            return None;
        }
        let exponent = golden(&mut at, 3.0 * e.min(0.0) - 0.01, 3.0 * e.max(0.0) + 0.01);
        return Some((exponent.exp2(), predict(trials, exponent.exp2())?));
    }
    // At an end of the grid the number is as good as zero or infinite, and any beyond would do.
    let (Some(&low), Some(&high)) = (best.checked_sub(1).and_then(|b| grid.get(b)), grid.get(best + 1))
    else {
        return None;
    };
    let exponent = golden(&mut at, low, high);
    Some((exponent.exp2(), predict(trials, exponent.exp2())?))
}

/// Golden-section search. Kiefer, "Sequential minimax search for a maximum", 1953.
/// It needs one new evaluation per step. The loss is taken to have one minimum in the interval.
fn golden(at: &mut dyn FnMut(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    let share = (5f64.sqrt() - 1.0) / 2.0;
    let mut left = high - share * (high - low);
    let mut right = low + share * (high - low);
    let (mut of_left, mut of_right) = (at(left), at(right));
    for _ in 0..REFINED {
        if of_left < of_right {
            (high, right, of_right) = (right, left, of_left);
            left = high - share * (high - low);
            of_left = at(left);
        } else {
            (low, left, of_left) = (left, right, of_right);
            right = low + share * (high - low);
            of_right = at(right);
        }
    }
    if of_left < of_right { left } else { right }
}
