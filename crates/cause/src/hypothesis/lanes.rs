//! Some of four neighbouring columns or rows of an input treated otherwise than the rest: kernels have a name of its own
//! for each lane of a vector.
//!
//! A mistake in one such name spoils one lane in four and leaves the others right.

use super::input::{floats, label, large};
use crate::Cause;
use crate::cut::{like, matrix_sizes, numbers};
use crate::output_view::Prediction;
use crate::trials::{Rank, Trials};

/// Lanes of four.
/// Single lanes, and pairs that are neighbours or two apart.
const LANES: [&[usize]; 8] = [&[0], &[1], &[2], &[3], &[0, 1], &[2, 3], &[0, 2], &[1, 3]];

/// What happens to the numbers of some lanes, what that means, and what else does the same.
type Treatment = (&'static str, Cause, fn(f64) -> f64, Option<&'static str>);

/// The first has a rival, because a loop may skip the same lanes.
const TREATMENTS: [Treatment; 3] = [
    (
        "are left out",
        Cause::MissingTerm,
        |_| 0.0,
        Some("as a loop over lanes does that begins late or ends early"),
    ),
    ("have the opposite sign", Cause::WrongSign, |v| -v, None),
    ("pass through an integer", Cause::WrongCast, f64::trunc, None),
];

/// Lanes left out, with the opposite sign, or cut to whole numbers.
/// Large inputs are left out: each of them would be evaluated for 8 sets of lanes and 3 treatments, along two axes.
pub(super) fn try_treated(trials: &mut Trials<'_, '_>) {
    for i in floats(trials).into_iter().filter(|&i| !large(trials, i)).collect::<Vec<_>>() {
        let [rows, columns] = matrix_sizes(&trials.context.cut.inputs[i]);
        let name = label(trials, i);
        for (by_rows, place) in [(false, "columns"), (true, "rows")] {
            let size = if by_rows { rows } else { columns };
            // Lanes must repeat to be told apart. Rows of a cut need not be neighbours.
            if size < 8 || by_rows && trials.context.cut.kept[i].is_some() {
                continue;
            }
            for lanes in LANES {
                for (what, cause, change, rival) in TREATMENTS {
                    let prediction = predict_changed(trials, i, by_rows, lanes, change);
                    let note = format!("{place} {lanes:?} of each 4 of {name} {what}");
                    trials.subsample_with_rival(cause, Rank::Placed, note, prediction, rival);
                }
            }
        }
    }
}

/// The call with `change` applied to these lanes of input `i`.
fn predict_changed(
    trials: &mut Trials<'_, '_>,
    i: usize,
    by_rows: bool,
    lanes: &[usize],
    change: fn(f64) -> f64,
) -> Option<Prediction> {
    let input = &trials.context.cut.inputs[i];
    let [_, columns] = matrix_sizes(input);
    let lane = |at: usize| if by_rows { at / columns % 4 } else { at % columns % 4 };
    let values = numbers(input).into_iter().enumerate();
    let values = values.map(|(at, v)| if lanes.contains(&lane(at)) { change(v) } else { v }).collect();
    trials.with_input(i, like(input, values))
}
