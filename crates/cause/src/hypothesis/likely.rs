//! What is near where nothing predicts the wrong values: from how large the errors are and how they lie. Such a candidate is
//! right about half of the time, so that it is named beside `unknown` and not in its place.
//!
//! Thresholds are coarse on purpose: three kinds of errors are told apart, not causes.

use crate::Cause;
use crate::output_view::Out;
use crate::trials::Trials;
use crate::words::number;

/// How the wrong elements of an output relate to the exact ones.
struct Relation {
    /// Correlation of observed with exact values.
    /// Means are not taken away: it is the cosine of the angle between the two lists.
    correlation: f64,
    /// RMS of the error over RMS of the exact values.
    error: f64,
    /// Share of wrong elements among all.
    share: f64,
}

/// `None` for fewer than four finite wrong elements, and for zeros.
fn relation(out: &Out) -> Option<Relation> {
    let finite = out.wrong().filter(|&i| out.observed[i].is_finite() && out.exact[i].is_finite());
    let (mut xy, mut xx, mut yy, mut ee, mut count) = (0.0, 0.0, 0.0, 0.0, 0);
    for i in finite {
        let (x, y) = (out.exact[i], out.observed[i]);
        (xy, xx, yy, ee, count) = (xy + x * y, xx + x * x, yy + y * y, ee + (y - x).powi(2), count + 1);
    }
    let share = out.wrong().count() as f64 / out.exact.len() as f64;
    let known = count >= 4 && xx > 0.0 && yy > 0.0;
    known.then(|| Relation { correlation: xy / (xx * yy).sqrt(), error: (ee / xx).sqrt(), share })
}

/// Results that look like those of other elements, or like those of a sum with some wrong terms.
/// The output with the largest share of wrong elements decides.
pub(super) fn try_guesses(trials: &mut Trials<'_, '_>) {
    let outs = trials.context.full.outs.iter().filter(|o| o.dtype.is_float());
    let Some(found) = outs.filter_map(relation).max_by(|a, b| a.share.total_cmp(&b.share)) else { return };
    let Relation { correlation, error, .. } = found;
    let numbers =
        format!("correlation {correlation:.2}, RMS error {} of the RMS of the exact results", number(error));
    // An operator without sums cannot have wrong terms.
    let sums = trials.context.evidence.precision.terms > 1;
    let (cause, text) = if correlation < 0.5 {
        (
            Cause::WrongStride,
            "wrong results are unrelated to the exact ones: other elements are read or written",
        )
    } else if sums && error > 1e-2 {
        (
            Cause::OffByOne,
            "wrong results resemble the exact ones: some terms of a sum are wrong elements, left out, or counted twice",
        )
    } else {
        (
            Cause::WrongFormula,
            "wrong results are close to the exact ones: part of the formula is computed poorly",
        )
    };
    trials.add_guess(cause, format!("{text} ({numbers})"), WEIGHT);
}

/// A prediction that explains more of the wrong elements is nearer.
const WEIGHT: f64 = 0.2;
