//! The exact result with another sign or by a factor.
//!
//! Factors are found by least squares, so they are fitted numbers unless the factor is minus one.

use crate::Cause;
use crate::output_view::Prediction;
use crate::trials::{Rank, Trials};
use crate::words::{factor, number};

/// The whole result by one factor, or wrong elements with the opposite sign.
/// The sign of wrong elements alone is tried too: a branch may be wrong where others are right.
pub(super) fn try_scaled(trials: &mut Trials<'_, '_>) {
    let outs = &trials.context.full.outs;
    // Integers have no factor.
    if outs.iter().any(|out| !out.dtype.is_float()) {
        return;
    }
    let negated: Prediction = outs
        .iter()
        .map(|out| out.exact.iter().enumerate().map(|(i, v)| if out.is_wrong(i) { -v } else { *v }).collect())
        .collect();
    trials.full(Cause::WrongSign, Rank::Placed, "the wrong elements have the opposite sign", &negated);
    for (o, out) in outs.iter().enumerate() {
        let all: Vec<usize> = (0..out.exact.len()).collect();
        let slope = slope(&out.exact, &out.observed, all);
        let Some(slope) = slope.filter(|s| s.abs() > 1e-6) else { continue };
        let mut prediction = trials.context.full.exact();
        prediction[o].iter_mut().for_each(|v| *v *= slope);
        let sign = (slope + 1.0).abs() < 1e-3;
        let cause = if sign { Cause::WrongSign } else { Cause::WrongScale };
        let note = format!("output {o} is the exact one times {}", factor(slope));
        trials.full(cause, if sign { Rank::Named } else { Rank::Fitted }, note, &prediction);
    }
}

/// The factor from exact to observed values with the least squared error. Zeros of the exact result give none.
fn slope(exact: &[f64], observed: &[f64], of: impl IntoIterator<Item = usize>) -> Option<f64> {
    let finite = of.into_iter().filter(|&i| exact[i].is_finite() && observed[i].is_finite());
    let (xy, xx) =
        finite.fold((0.0, 0.0), |(xy, xx), i| (xy + exact[i] * observed[i], xx + exact[i] * exact[i]));
    (xx > 0.0).then(|| xy / xx)
}

/// Each row by a factor of its own, as a norm with a wrong mean gives.
/// The factors are read off what was observed, so that this only describes.
pub(super) fn rows_scaled(trials: &mut Trials<'_, '_>) {
    let mut prediction = trials.context.full.exact();
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for (out, values) in trials.context.full.outs.iter().zip(&mut prediction) {
        // In a row of few elements a factor always explains much.
        if !out.dtype.is_float() || out.width < 4 {
            return;
        }
        for row in 0..out.rows() {
            let at = row * out.width..(row + 1) * out.width;
            if let Some(slope) = slope(&out.exact, &out.observed, at.clone()).filter(|s| s.abs() > 1e-6) {
                (least, most) = (least.min(slope), most.max(slope));
                values[at].iter_mut().for_each(|v| *v *= slope);
            }
        }
    }
    // An operator with an eps normalises, so that a factor per row points at the sum behind it.
    let norm = trials.context.evidence.call.op.attributes().get("eps").is_some();
    let (cause, why) = if !norm || most - least < 1e-6 * most.abs() {
        (Cause::WrongScale, "")
    } else if (most - 1.0).abs().max((least - 1.0).abs()) < NARROW {
        (Cause::WrongScale, ", as if the sum behind it were rounded to few bits or lacked a few terms")
    // All rows are too large: they were divided by too small a sum.
    } else if least > 1.0 - ROUNDING {
        (Cause::TailDropped, ", as if terms were left out of the sum behind it")
    // All rows are too small: they were divided by too large a sum.
    } else if most < 1.0 + ROUNDING {
        (Cause::OffByOne, ", as if the sum behind it had terms that do not belong to it")
    } else {
        (Cause::WrongStride, ", as if the sum behind it were that of other elements")
    };
    let (least, most) = (number(least), number(most));
    let note = format!("each row is the exact one times a factor of its own, {least} to {most}{why}");
    trials.full(cause, Rank::Descriptive, note, &prediction);
}

/// Factors so close to 1 come from roundings to bf16 at most.
const NARROW: f64 = 1.0 / 256.0;
/// Factors so close to 1 are 1.
const ROUNDING: f64 = 1e-5;
