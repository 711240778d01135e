//! Results that were not written: zeros, a constant, or an input stand in their place.

use crate::Cause;
use crate::cut::numbers;
use crate::study::Out;
use crate::trials::{Rank, Trials};
use crate::words::number;
use std::collections::BTreeSet;

/// The wrong elements hold what memory held before.
pub(super) fn left(trials: &mut Trials<'_, '_>) {
    let outs = &trials.study.full.outs;
    let firsts: Vec<Option<f64>> = outs.iter().map(|o| o.wrong().next().map(|i| o.observed[i])).collect();
    let same = outs.iter().zip(&firsts).all(|(out, first)| {
        out.wrong()
            .all(|i| first.is_some_and(|f| f.to_bits() == out.observed[i].to_bits() || f == out.observed[i]))
    });
    if same && trials.study.full.wrong() > 0 {
        constant(trials, firsts.into_iter().flatten().next().unwrap_or(0.0));
    }
    inputs(trials);
}

/// All wrong elements hold one value.
fn constant(trials: &mut Trials<'_, '_>, value: f64) {
    let mut prediction = trials.study.full.exact();
    for (out, values) in trials.study.full.outs.iter().zip(&mut prediction) {
        let held = |i: usize| out.is_wrong(i) || out.observed[i] == value;
        (0..values.len()).filter(|&i| held(i)).for_each(|i| values[i] = value);
    }
    let (cause, place) = region(&trials.study.full.outs);
    let note = format!("{place} hold {}, as if nothing was written there", number(value));
    if value == 0.0 || trials.study.full.wrong() >= 8 && value.is_finite() {
        trials.full(cause, Rank::Placed, note, &prediction);
    } else if trials.study.full.wrong() >= 8 {
        // NaN may as well have been computed.
        trials.statistical(cause, Rank::Descriptive, note, 0.7);
    }
}

/// Whether the wrong elements are the end of the rows or columns of an output, and where they are.
fn region(outs: &[Out]) -> (Cause, String) {
    for out in outs {
        let rows: BTreeSet<usize> = out.wrong().map(|i| i / out.width).collect();
        let columns: BTreeSet<usize> = out.wrong().map(|i| i % out.width).collect();
        let tail = |set: &BTreeSet<usize>, all: usize| {
            set.len() < all && set.first().is_some_and(|first| first + set.len() == all)
        };
        if tail(&columns, out.width) && out.wrong().count() == rows.len() * columns.len() {
            return (Cause::TailDropped, format!("the last {} of {} columns", columns.len(), out.width));
        }
        if tail(&rows, out.rows()) && columns.len() == out.width {
            return (Cause::TailDropped, format!("the last {} of {} rows", rows.len(), out.rows()));
        }
    }
    (Cause::NotWritten, "the wrong elements".to_string())
}

/// The wrong elements are those of an input at the same place.
fn inputs(trials: &mut Trials<'_, '_>) {
    for i in super::input::floats(trials) {
        let input = numbers(&trials.study.cut.whole[i]);
        for o in 0..trials.study.full.outs.len() {
            let out = &trials.study.full.outs[o];
            if input.len() != out.exact.len() || out.wrong().next().is_none() {
                continue;
            }
            let mut prediction = trials.study.full.exact();
            out.wrong().for_each(|at| prediction[o][at] = input[at]);
            let note =
                format!("the wrong elements of output {o} are those of {}", super::input::label(trials, i));
            trials.full(Cause::NotWritten, Rank::Placed, note, &prediction);
        }
    }
}
