//! NaN and infinities where the exact result has none.
//!
//! An infinity within a formula often ends as NaN, such as the quotient of two infinities.

use crate::Cause;
use crate::cut::numbers;
use crate::output_view::Out;
use crate::trials::{Rank, Trials};
use crate::words::number;

/// Wrong elements that are NaN or infinite, and what sets them apart.
/// If an input of the same size has a bound that sets them apart, the note names it, and the cause may be certain. Otherwise the share
/// of wrong elements that are not finite is all that is known.
pub(super) fn try_overflow(trials: &mut Trials<'_, '_>) {
    // Memory that nobody wrote may hold NaN as well; it has another cause.
    let broken = |out: &Out, i: usize| {
        out.is_wrong(i) && !out.unwritten[i] && !out.observed[i].is_finite() && out.exact[i].is_finite()
    };
    for o in 0..trials.context.full.outs.len() {
        let out = &trials.context.full.outs[o];
        let (all, wrong) = ((0..out.exact.len()).filter(|&i| broken(out, i)).count(), out.wrong().count());
        if all == 0 {
            continue;
        }
        let share = all as f64 / wrong as f64;
        let reported = trials.context.evidence.findings.iter().find(|f| f.kind.contains("finite"));
        let seen = reported.map_or(String::new(), |f| {
            format!("; the device reports the first at line {}: {}", f.line, f.message)
        });
        let mut set_apart = None;
        for i in super::input::floats(trials) {
            let input = numbers(&trials.context.cut.whole[i]);
            // Only an input of the output's size can be compared element by element.
            if input.len() == out.exact.len() {
                set_apart = set_apart.or_else(|| threshold(out, &input, &broken).map(|t| (i, t)));
            }
        }
        let note = match set_apart {
            Some((i, text)) => format!(
                "{all} results are NaN or infinite, just where {} {text}{seen}",
                super::input::label(trials, i)
            ),
            None => format!("{all} results are NaN or infinite where the exact ones are finite{seen}"),
        };
        // A clear bound on the input is as good as a prediction.
        if set_apart_fully(share, trials, o) && note.contains("just where") && wrong < out.exact.len() {
            trials.add_proven(Cause::Overflow, Rank::Placed, note)
        } else {
            trials.statistical(Cause::Overflow, Rank::Descriptive, note, 0.95 * share)
        }
    }
}

/// Whether everything that is wrong is NaN or infinite.
/// Other outputs must be right, since the bound says nothing about them.
fn set_apart_fully(share: f64, trials: &Trials<'_, '_>, o: usize) -> bool {
    share >= 1.0
        && trials.context.full.outs.iter().enumerate().all(|(k, out)| k == o || out.wrong().next().is_none())
}

/// The bound on the input's elements that sets broken results apart, if there is one.
/// Tried for large, for small, and for large magnitudes.
/// It exists if the smallest key of a broken element exceeds the largest key of any other.
fn threshold(out: &Out, input: &[f64], broken: &dyn Fn(&Out, usize) -> bool) -> Option<String> {
    for (name, key) in [
        ("exceeds", (|v| v) as fn(f64) -> f64),
        ("is below minus", |v| -v),
        ("exceeds, up to its sign,", f64::abs),
    ] {
        let (mut least_broken, mut most_right) = (f64::INFINITY, f64::NEG_INFINITY);
        for (i, &v) in input.iter().enumerate() {
            if broken(out, i) {
                least_broken = least_broken.min(key(v))
            } else {
                most_right = most_right.max(key(v))
            }
        }
        if least_broken > most_right && most_right.is_finite() {
            return Some(format!("{name} {} (to {} it is right)", number(least_broken), number(most_right)));
        }
    }
    None
}
