//! Results that were not written: what memory held before, zeros, or an input stand in their place.
//!
//! Memory is filled with known words before a call, so that elements that nobody wrote can be told from results.

use super::rivals;
use crate::Cause;
use crate::cut::numbers;
use crate::error_map::block_sizes;
use crate::output_view::{Out, Prediction};
use crate::trials::{Rank, Trials};
use crate::words::{number, ranges};
use std::collections::BTreeSet;

/// The wrong elements hold what memory held before.
pub(super) fn try_left(trials: &mut Trials<'_, '_>) {
    // Such words are surer evidence than a common value.
    if trials.context.full.outs.iter().any(|o| o.unwritten.contains(&true)) {
        return try_unwritten(trials);
    }
    let outs = &trials.context.full.outs;
    let firsts: Vec<f64> = outs.iter().filter_map(|o| o.wrong().next().map(|i| o.observed[i])).collect();
    let Some(&value) = firsts.first() else { return };
    // NaN equals itself only by its bits.
    let same = |v: f64| v.to_bits() == value.to_bits() || v == value;
    if outs.iter().all(|out| out.wrong().all(|i| same(out.observed[i]))) {
        constant(trials, value);
    }
    inputs(trials);
}

/// Elements with the very bits that memory was filled with.
///
/// Elements that are unwritten are predicted as NaN, which is what their bits are read as.
fn try_unwritten(trials: &mut Trials<'_, '_>) {
    let mut prediction: Prediction = trials.context.full.exact();
    let (mut left, mut wrong) = (0, 0);
    for (out, values) in trials.context.full.outs.iter().zip(&mut prediction) {
        for (i, value) in values.iter_mut().enumerate() {
            wrong += usize::from(out.is_wrong(i));
            if out.unwritten[i] && out.is_wrong(i) {
                *value = f64::NAN;
                left += 1;
            }
        }
    }
    let blocks = |out: &Out| block_sizes(&trials.context.evidence.call.op.attributes(), out.width);
    let outs = trials.context.full.outs.iter().filter(|o| o.unwritten.contains(&true));
    let Region { cause, place, is_unique: telling, rival } = outs
        .map(|out| region(out, &|i| out.unwritten[i], &blocks(out)))
        .next()
        .unwrap_or(Region::new(Cause::NotWritten, String::new()));
    let collision = trials.context.evidence.findings.iter().find(|f| f.kind.contains("race"));
    if let Some(race) = collision {
        // Invocations meet at some elements and leave others out: the index of the store is wrong.
        // From three to seven tenths: about half of the elements are left out.
        let half = left * 10 > 3 * wrong.max(1) && (3..=7).contains(&(left * 10 / total(trials)));
        let cause = if half && race.kind.contains("across") { Cause::Race } else { Cause::WrongStride };
        let note =
            format!("{place} are never written, while others are written more than once: {}", race.message);
        trials.statistical(cause, Rank::Fitted, note, 0.97);
        return;
    }
    let share = left as f64 / wrong.max(1) as f64;
    let note = match rival {
        Some(rival) => format!("{place} are never written ({rival})"),
        None => format!("{place} are never written"),
    };
    let outside = trials.context.evidence.findings.iter().any(|f| f.kind.contains("bound"));
    // Rows of a state may have gone to other places of it, which nobody sees here.
    let elsewhere = outside || trials.context.evidence.call.op.appends();
    if share >= 1.0 && (elsewhere || !telling) {
        trials.statistical(cause, Rank::Placed, note, 1.0);
    } else if share >= 1.0 {
        trials.full(cause, Rank::Placed, note, &prediction);
    } else {
        trials.statistical(
            Cause::WrongStride,
            Rank::Descriptive,
            format!("{note}, and others hold wrong values: results are written to wrong places"),
            0.7,
        );
    }
}

/// Elements of the outputs that were not written as a whole; at least 1.
fn total(trials: &Trials<'_, '_>) -> usize {
    trials
        .context
        .full
        .outs
        .iter()
        .filter(|o| o.unwritten.contains(&true))
        .map(|o| o.exact.len())
        .sum::<usize>()
        .max(1)
}

/// All wrong elements hold one value.
/// Right elements with the same value belong to the place: they may not have been written either.
/// Zeros are weak evidence, and other values are weaker still.
fn constant(trials: &mut Trials<'_, '_>, value: f64) {
    let mut prediction = trials.context.full.exact();
    for (out, values) in trials.context.full.outs.iter().zip(&mut prediction) {
        let held = |i: usize| out.is_wrong(i) || out.observed[i] == value;
        (0..values.len()).filter(|&i| held(i)).for_each(|i| values[i] = value);
    }
    let blocks = |out: &Out| block_sizes(&trials.context.evidence.call.op.attributes(), out.width);
    let outs = trials.context.full.outs.iter().filter(|o| o.wrong().next().is_some());
    let found =
        outs.map(|out| region(out, &|i| out.is_wrong(i) || out.observed[i] == value, &blocks(out))).next();
    let Some(Region { cause, place, .. }) = found else { return };
    let note = format!("{place} hold {}, as if nothing was written there", number(value));
    if value == 0.0 {
        // Zeros may as well have been computed, and memory that nobody wrote is known by other bits where it can be.
        trials.statistical(cause, Rank::Placed, note, 1.0);
    } else {
        // Memory that nobody wrote holds other bits here; one value in all places was computed, or is of another's memory.
        let fit = if trials.context.full.wrong() >= 8 { 0.55 } else { 0.1 };
        trials.statistical(cause, Rank::Descriptive, note, fit);
    }
}

/// Steps in which kernels go through elements.
/// Vectors, subgroups and workgroups.
const STEPS: [usize; 7] = [4, 32, 64, 128, 256, 512, 1024];

/// Elements that are left out.
struct Region {
    /// What leaving them out means.
    cause: Cause,
    /// Where they are, for people.
    place: String,
    /// Whether nothing else leaves out just these.
    is_unique: bool,
    /// What else does, if it can be named.
    rival: Option<&'static str>,
}

/// Longer beginnings are whole pieces of work that are missing, not an index that begins too late.
const FIRST: usize = 4;

impl Region {
    /// A place with which nothing more is known.
    fn new(cause: Cause, place: String) -> Region {
        Region { cause, place, is_unique: false, rival: None }
    }

    /// `count` at an end of `size`.
    /// The place is unique if no other mistake leaves out as many.
    fn at_end(self, count: usize, size: usize) -> Region {
        let rival = rivals::of_an_end(count, size);
        Region { is_unique: rival.is_none(), rival, ..self }
    }
}

/// What leaving out these elements means, and where they are: the end or the beginning of the output, of its rows, of
/// its heads, or of each step.
///
/// The tests go from simple places to periodic ones. A place at an end is telling only if no rival leaves out as many.
fn region(out: &Out, left: &dyn Fn(usize) -> bool, blocks: &[(String, usize)]) -> Region {
    let all = out.exact.len();
    let items: Vec<usize> = (0..all).filter(|&i| left(i)).collect();
    let (count, first) = (items.len(), items.first().copied().unwrap_or(0));
    if count == all {
        return Region::new(Cause::NotWritten, "all elements".into());
    }
    if first + count == all {
        let found = Region::new(Cause::TailDropped, format!("the last {count} of {all} elements"));
        // Rows are counted where only whole ones are missing, because a bound on rows is the likelier mistake.
        let whole_rows = count.is_multiple_of(out.width);
        return if whole_rows {
            found.at_end(count / out.width, all / out.width)
        } else {
            found.at_end(count, all)
        };
    }
    if first == 0 && items.last().is_some_and(|l| l + 1 == count) {
        let cause = if count <= FIRST { Cause::OffByOne } else { Cause::NotWritten };
        let found = Region::new(cause, format!("the first {count} of {all} elements"));
        return Region { is_unique: count <= FIRST && 4 * count <= all, ..found };
    }
    // A run that ends with a row is the tail of that row and of those before it.
    let run = items.last().is_some_and(|last| last + 1 - first == count);
    if run && (first + count) % out.width == 0 {
        let row = (first + count) / out.width - 1;
        return Region::new(
            Cause::TailDropped,
            format!("{count} of {all} elements, up to the end of row {row},"),
        );
    }
    let own = [("row".to_string(), out.width)];
    let steps = STEPS.iter().map(|s| ("step".to_string(), *s));
    for (name, size) in own
        .iter()
        .cloned()
        .chain(blocks.iter().cloned())
        .chain(steps.clone())
        .chain(steps.map(|(n, s)| (n, 4 * s)))
    {
        // One step is no repetition.
        if size < 2 || size * 2 > all {
            continue;
        }
        let places: BTreeSet<usize> = items.iter().map(|i| i % size).collect();
        // Nine of ten steps must lack them.
        let whole = count * 10 >= places.len() * (all / size) * 9;
        let (low, high) = (places.first().copied().unwrap_or(0), places.last().copied().unwrap_or(0));
        let run = high + 1 - low == places.len() && places.len() < size;
        if whole && run && high + 1 == size {
            let text = format!("the last {} of each {size} elements (a {name})", places.len());
            return Region::new(Cause::TailDropped, text).at_end(places.len(), size);
        }
        if whole && run && low == 0 {
            let text = format!("the first {} of each {size} elements (a {name})", places.len());
            let telling = rivals::of_an_end(places.len(), size).is_none();
            return Region { is_unique: telling, ..Region::new(Cause::OffByOne, text) };
        }
    }
    let rows: Vec<usize> = items.iter().map(|i| i / out.width).collect::<BTreeSet<_>>().into_iter().collect();
    Region::new(Cause::NotWritten, format!("{count} of {all} elements, in rows {},", ranges(&rows)))
}

/// The wrong elements are those of an input at the same place.
/// Only inputs with as many elements as the output are compared.
fn inputs(trials: &mut Trials<'_, '_>) {
    for i in super::input::floats(trials) {
        for o in 0..trials.context.full.outs.len() {
            let out = &trials.context.full.outs[o];
            let len: usize = trials.context.cut.whole[i].shape().iter().product();
            if len != out.exact.len() || out.wrong().next().is_none() {
                continue;
            }
            let input = numbers(&trials.context.cut.whole[i]);
            let mut prediction = trials.context.full.exact();
            out.wrong().for_each(|at| prediction[o][at] = input[at]);
            let note =
                format!("the wrong elements of output {o} are those of {}", super::input::label(trials, i));
            // A formula that lacks a factor or a term may give its input, too.
            trials.possible(Cause::NotWritten, Rank::Placed, note, &prediction);
        }
    }
}
