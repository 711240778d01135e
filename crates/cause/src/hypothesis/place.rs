//! Exact results at another place: rows, columns and heads exchanged or shifted, transposed, written with another stride.
//!
//! The sources are searched in what was observed, so that maps need no guess; a map with a rule is then named.

use crate::Cause;
use crate::error_map::block_sizes;
use crate::fit::ratio;
use crate::output_view::{Out, Prediction};
use crate::trials::{Rank, Trials};

/// Wrong rows or columns that are looked for; of more, these many.
/// The search is quadratic in the number of rows.
const LOOKED_FOR: usize = 96;
/// Rows or columns above which the places are not searched one by one.
const SEARCHED: usize = 4096;

/// Rows, heads or columns hold the exact results of others.
/// Rows are tried first, then runs of columns that attributes name, then columns of outputs that have at least three rows.
pub(super) fn try_moved(trials: &mut Trials<'_, '_>) {
    for o in 0..trials.context.full.outs.len() {
        let out = &trials.context.full.outs[o];
        let (rows, width) = (out.rows(), out.width);
        if out.wrong().next().is_none() {
            continue;
        }
        if rows > 1 {
            let found =
                sources(rows, &|r, from| matches(out, (0..width).map(|c| (r * width + c, from * width + c))));
            try_sources(trials, o, found, "row", rows, &|i, unit| unit * width + i % width, &|i| i / width);
            // Written as rows by columns exchanged, at the same number of elements.
            flat(trials, o, "transposed", Cause::Transposed, |i| Some(i % rows * width + i / rows));
        }
        for (attribute, size) in block_sizes(&trials.context.evidence.call.op.attributes(), width) {
            let out = &trials.context.full.outs[o];
            let pairs = |b: usize, from: usize| {
                (0..rows * size)
                    .map(move |k| (k / size * width + k % size, b, from))
                    .map(move |(at, b, from)| (at + b * size, at + from * size))
            };
            let found = sources(width / size, &|b, from| matches(out, pairs(b, from)));
            let unit = format!("run of {size} columns (`{attribute}`)");
            try_sources(
                trials,
                o,
                found,
                &unit,
                width / size,
                &|i, b| i / width * width + b * size + i % size,
                &|i| i % width / size,
            );
        }
        if rows >= 3 && width <= SEARCHED {
            let out = &trials.context.full.outs[o];
            let found =
                sources(width, &|c, from| matches(out, (0..rows).map(|r| (r * width + c, r * width + from))));
            try_sources(trials, o, found, "column", width, &|i, c| i / width * width + c, &|i| i % width);
        }
        shifts(trials, o);
    }
}

/// So many rows, columns or heads tell maps apart: half a distance moves three rows as an index does that is one too small.
const CLEAR_COUNT: usize = 4;

/// Whether every observed element is the exact one at the other place.
/// It stops at the first that is not.
/// Each pair is an observed element and the place of the exact one.
fn matches(out: &Out, mut pairs: impl Iterator<Item = (usize, usize)>) -> bool {
    pairs.all(|(at, from)| ratio(out, at, out.exact[from], 1.0) <= 1.0)
}

/// For each unit (a row, a column, a head) the one whose exact results it holds; `None` where it is not found. Empty if
/// no unit is elsewhere.
///
/// Three steps: a shift by one, the nearest unit with equal results for each that is wrong, then exchanges among these. Units that are
/// right keep their own place.
fn sources(count: usize, same: &dyn Fn(usize, usize) -> bool) -> Vec<Option<usize>> {
    if !(2..=SEARCHED).contains(&count) {
        return Vec::new();
    }
    let wrong: Vec<usize> = (0..count).filter(|&u| !same(u, u)).collect();
    let mut found: Vec<Option<usize>> = (0..count).map(Some).collect();
    wrong.iter().for_each(|&u| found[u] = None);
    // A shift by one is tried first: among equal rows a search would find others.
    for by in [1, -1] {
        let from = |u: usize| u.checked_add_signed(by).filter(|&f| f < count);
        let inside = wrong.iter().filter(|&&u| from(u).is_some()).count();
        if inside > 1 && wrong.iter().all(|&u| from(u).is_none_or(|f| same(u, f))) {
            wrong.iter().for_each(|&u| found[u] = from(u));
            return found;
        }
    }
    for &unit in wrong.iter().take(LOOKED_FOR) {
        // Neighbours first: among equal rows the nearest is the likely source.
        let mut places: Vec<usize> = (0..count).filter(|&f| f != unit).collect();
        places.sort_by_key(|&f| f.abs_diff(unit));
        found[unit] = places.into_iter().find(|&from| same(unit, from));
    }
    // Among equal sources one whose place holds this unit is an exchange.
    for &unit in wrong.iter().take(LOOKED_FOR) {
        let back = |from: usize| from != unit && same(unit, from) && same(from, unit);
        if let Some(&other) = wrong.iter().take(LOOKED_FOR).find(|&&from| back(from)) {
            found[unit] = Some(other);
        }
    }
    let any = wrong.iter().any(|&u| found[u].is_some());
    if any { found } else { Vec::new() }
}

/// Tests the sources found, and names them: a shift, an exchange, one for all.
///
/// `element` gives the index that an element has in another unit, and `unit_of` the unit of an element.
fn try_sources(
    trials: &mut Trials<'_, '_>,
    o: usize,
    found: Vec<Option<usize>>,
    unit: &str,
    count: usize,
    element: &dyn Fn(usize, usize) -> usize,
    unit_of: &dyn Fn(usize) -> usize,
) {
    let moved: Vec<(usize, usize)> =
        found.iter().enumerate().filter_map(|(u, f)| f.filter(|f| *f != u).map(|f| (u, f))).collect();
    let Some(&(first, source)) = moved.first() else { return };
    let shift = source as isize - first as isize;
    let shifted = moved.iter().all(|(u, f)| *f as isize - *u as isize == shift);
    let exchanged = moved.iter().all(|(u, f)| found[*f] == Some(*u));
    let one = moved.len() > 1 && moved.iter().all(|(_, f)| *f == source);
    let swapped = match unit {
        "row" => Cause::RowsSwapped,
        "column" => Cause::ColumnsSwapped,
        _ => Cause::WrongHead,
    };
    // A shift by several may come of a position, an offset or a stride, and two or three units are moved alike by many maps.
    let decisive = count >= CLEAR_COUNT && (exchanged || one || shifted && shift.abs() == 1);
    let (cause, note) = match (exchanged, one, shifted) {
        (true, ..) => (swapped, format!("each {unit} is exchanged with another: {first} with {source}, …")),
        (_, true, _) => (
            if swapped == Cause::WrongHead { swapped } else { Cause::WrongStride },
            format!("{} of {count}: each is {unit} {source}", moved.len()),
        ),
        (_, _, true) if shift.abs() == 1 => (
            if swapped == Cause::WrongHead { swapped } else { Cause::OffByOne },
            format!("each {unit} is the one {}", if shift > 0 { "behind it" } else { "before it" }),
        ),
        (_, _, true) => (
            if swapped == Cause::WrongHead { swapped } else { Cause::WrongStride },
            format!("each {unit} is the one {shift:+} from it"),
        ),
        _ => (
            if swapped == Cause::WrongHead { swapped } else { Cause::WrongStride },
            format!("each {unit} is another: {first} is {source}, …"),
        ),
    };
    let out = &trials.context.full.outs[o];
    let from = |i: usize| found[unit_of(i)].map(|from| element(i, from));
    if let Some(prediction) = predict_gathered(trials, o, out, &from) {
        // A map without a rule says where results come from, not why.
        if decisive {
            trials.full(cause, Rank::Placed, note, &prediction)
        } else {
            trials.add_described(cause, note, &prediction)
        };
    }
}

/// Of the wrong elements this part, at most, may run off the end, where nothing is predicted.
/// A prediction that is open there copies what was observed, which always fits.
const OFF_THE_END: usize = 8;

/// The exact results gathered from elsewhere for output `o`; `None` if that says nothing about most wrong elements.
///
/// An element without a source keeps the observed value, so it fits and proves nothing. A prediction with many of these is refused.
fn predict_gathered(
    trials: &Trials<'_, '_>,
    o: usize,
    out: &Out,
    from: &dyn Fn(usize) -> Option<usize>,
) -> Option<Prediction> {
    let mut prediction = trials.context.full.exact();
    let (mut wrong, mut open, mut told) = (0, 0, 0);
    for (i, value) in prediction[o].iter_mut().enumerate() {
        let known = from(i).and_then(|from| out.exact.get(from));
        wrong += usize::from(out.is_wrong(i));
        told += usize::from(out.is_wrong(i) && !out.unwritten[i] && known.is_some());
        open += usize::from(out.is_wrong(i) && known.is_none() && !out.unwritten[i]);
        *value = known.copied().unwrap_or(out.observed[i]);
    }
    (open * OFF_THE_END <= wrong && told * 2 > open).then_some(prediction)
}

/// One output whose element `i` is the exact one at `from(i)`.
/// Tests a rule for places without searching for it.
fn flat(
    trials: &mut Trials<'_, '_>,
    o: usize,
    what: &str,
    cause: Cause,
    from: impl Fn(usize) -> Option<usize>,
) {
    let out = &trials.context.full.outs[o];
    let Some(prediction) = predict_gathered(trials, o, out, &from) else { return };
    trials.full(cause, Rank::Placed, format!("output {o} is {what}"), &prediction);
}

/// All elements by a constant distance.
/// Small distances, a vector's or a tile's, and whole rows.
/// Elements whose source lies outside the output are predicted as observed.
fn shifts(trials: &mut Trials<'_, '_>, o: usize) {
    let out = &trials.context.full.outs[o];
    let width = out.width as isize;
    let mut distances = vec![1, -1, 2, -2, 4, -4, 64, -64];
    distances.extend([width, -width]);
    // A few elements fit many distances.
    if out.exact.len() < 16 {
        return;
    }
    for by in distances {
        let cause = if by.abs() == 1 { Cause::OffByOne } else { Cause::WrongStride };
        let what =
            format!("shifted by {} elements towards its {}", by.abs(), if by > 0 { "start" } else { "end" });
        flat(trials, o, &what, cause, |i| usize::try_from(i as isize + by).ok());
    }
}

/// Rows written at another distance than they have.
/// Strides are rounded up to vectors, close to the width, twice and half of it.
pub(super) fn try_strided(trials: &mut Trials<'_, '_>) {
    for o in 0..trials.context.full.outs.len() {
        let (rows, width) = (trials.context.full.outs[o].rows(), trials.context.full.outs[o].width);
        if rows < 2 || width < 2 {
            continue;
        }
        let rounded = [4, 8, 16, 32, 64].map(|m| width.next_multiple_of(m));
        let near = (1..=4).flat_map(|d| [width + d, width.saturating_sub(d)]);
        let mut strides: Vec<usize> = rounded.into_iter().chain(near).chain([2 * width, width / 2]).collect();
        strides.retain(|&s| s != width && s > 0);
        strides.dedup();
        for stride in strides {
            let what = format!("written with rows {stride} elements apart, not {width}");
            flat(trials, o, &what, Cause::WrongStride, |i| {
                // The last row that reaches the place is the one that stays.
                let row = (i / stride).min(rows - 1);
                let column = i - row * stride;
                (column < width).then_some(row * width + column)
            });
        }
    }
}
