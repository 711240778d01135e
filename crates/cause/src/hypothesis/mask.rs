//! Attention: which keys a query sees, and of which head.
//!
//! Ranges of keys are half-open and count from the first cached key.

use crate::Cause;
use crate::cut::numbers;
use crate::output_view::Prediction;
use crate::trials::{Rank, Trials};
use tapml_graph::op::Attention;
use tapml_graph::{Op, Symbols};
use tapml_reference::{Value, eval};

/// Keys more or fewer than a query should see.
/// Small errors of an index; larger ones are tiles, which are tried apart.
const SHIFTS: [isize; 6] = [1, -1, 2, -2, 3, -3];

/// The mask is ignored, or shifted.
/// Windows and chunks ignored, masks shifted, keys left out at either end, positions from zero.
/// Each is evaluated by the reference with other keys, so predictions hold for softmax, sinks and caps alike.
pub(super) fn tests(trials: &mut Trials<'_, '_>) {
    let Op::Attention(op) = &trials.context.cut.op else { return };
    let op = op.clone();
    let rows = trials.context.cut.inputs[0].shape()[0];
    for (name, without) in [
        ("window", Attention { window: None, ..op.clone() }),
        ("chunk", Attention { chunk: None, ..op.clone() }),
        ("window and chunk", Attention { window: None, chunk: None, ..op.clone() }),
    ] {
        if without != op {
            let prediction = trials.eval(&without.into(), &trials.context.cut.inputs.clone());
            trials.cut(Cause::WindowIgnored, Rank::Named, format!("the {name} is ignored"), prediction);
        }
    }
    // A single query, the last one, sees every key anyhow.
    if op.causal && rows > 1 {
        let prediction = by_rows(trials, &op, |_, keys| 0..keys);
        trials.cut(Cause::MaskIgnored, Rank::Named, "every query sees every key", prediction);
    }
    for shift in SHIFTS {
        let more = if shift > 0 { "more" } else { "fewer" };
        let clamp = |end: usize, keys: usize| (end as isize + shift).clamp(0, keys as isize) as usize;
        let prediction = by_rows(trials, &op, |own, keys| own.start..clamp(own.end, keys));
        let note = format!("each query sees {} keys {more} at its end", shift.abs());
        trials.cut(Cause::MaskShifted, Rank::Placed, note, prediction);
        if op.window.is_some() || op.chunk.is_some() {
            let prediction = by_rows(trials, &op, |own, keys| clamp(own.start, keys)..clamp(own.end, keys));
            let note = format!("the keys that each query sees are shifted by {shift:+}");
            trials.cut(Cause::MaskShifted, Rank::Placed, note, prediction);
        }
    }
    // Sizes of tiles that kernels go through keys in.
    for tile in [4, 8, 16, 32, 64] {
        let prediction = by_rows(trials, &op, |own, _| own.start..own.start + own.len() / tile * tile);
        let note = format!("the keys of the last incomplete {tile} are left out");
        trials.cut(Cause::TailDropped, Rank::Placed, note, prediction);
        let prediction = by_rows(trials, &op, |own, _| own.start..own.end.min(own.start + tile));
        trials.cut(
            Cause::TailDropped,
            Rank::Placed,
            format!("only the first {tile} keys are seen"),
            prediction,
        );
        let prediction =
            by_rows(trials, &op, |own, _| own.start..own.end.saturating_sub(tile).max(own.start));
        trials.cut(
            Cause::TailDropped,
            Rank::Placed,
            format!("the last {tile} keys are left out"),
            prediction,
        );
    }
    let prediction = by_rows(trials, &op, |own, _| (own.start + 1).min(own.end)..own.end);
    trials.cut(Cause::OffByOne, Rank::Placed, "the first key is left out", prediction);
    // The position of the first row is taken for 0.
    let prediction = by_rows(trials, &op, |own, keys| 0..(own.end + rows).saturating_sub(keys).max(1));
    trials.cut(
        Cause::PositionShifted,
        Rank::Placed,
        "positions are counted from the first query",
        prediction,
    );
    window_shifted(trials, &op);
}

/// The window or the chunk has another length.
/// Sizes that are off by up to three are tried.
fn window_shifted(trials: &mut Trials<'_, '_>, op: &Attention) {
    for shift in SHIFTS {
        let other =
            |size: Option<u32>| size.and_then(|s| s.checked_add_signed(shift as i32)).filter(|&s| s > 0);
        for (name, size, changed) in [
            ("window", op.window, Attention { window: other(op.window), ..op.clone() }),
            ("chunk", op.chunk, Attention { chunk: other(op.chunk), ..op.clone() }),
        ] {
            let Some(size) = size else { continue };
            // A size that would become zero is `None`, which is the absence of a window: that was tried.
            if changed.window.is_some() == op.window.is_some()
                && changed.chunk.is_some() == op.chunk.is_some()
            {
                let prediction = trials.eval(&changed.into(), &trials.context.cut.inputs.clone());
                let note = format!("the {name} is {} keys long, not {size}", size as isize + shift);
                trials.cut(Cause::MaskShifted, Rank::Placed, note, prediction);
            }
        }
    }
}

/// Each query row alone, with the keys that `seen` makes of its own range and the count of all. A query without keys
/// gives 0. That a key's distance is counted from the last one seen shifts the scores of ALiBi alike.
///
/// The operator is called once per row with one query, the keys that it sees, and a position that makes the last of them its own. The
/// causal mask then hides none.
fn by_rows(
    trials: &mut Trials<'_, '_>,
    op: &Attention,
    seen: impl Fn(std::ops::Range<usize>, usize) -> std::ops::Range<usize>,
) -> Option<Prediction> {
    // All rows together are about one evaluation.
    trials.spend()?;
    let inputs = &trials.context.cut.inputs;
    let (q, k, v) = (inputs.first()?, inputs.get(1)?, inputs.get(2)?);
    let (rows, keys) = (q.shape()[0], k.shape()[0]);
    let width = op.heads as usize * op.value_size() as usize;
    // The range is made by cutting keys, so the operator itself must not mask any more.
    let plain = Attention { causal: true, window: None, chunk: None, ..op.clone() };
    let mut values = Vec::with_capacity(rows * width);
    for row in 0..rows {
        let seen = seen(own_keys(op, row, rows, keys), keys);
        if seen.is_empty() {
            values.extend(std::iter::repeat_n(0.0, width));
            continue;
        }
        let mut own =
            vec![part(q, row, 1)?, part(k, seen.start, seen.len())?, part(v, seen.start, seen.len())?];
        own.extend(inputs.get(3).cloned());
        let symbols = Symbols::np(1, seen.len() as u64 - 1);
        values.extend(eval(&plain.clone().into(), &symbols, &own).ok()?.first().map(numbers)?);
    }
    Some(vec![values])
}

/// The keys that a query row sees.
/// The rows are the last ones: row `rows - 1` has the last position.
/// A window ends at the query's own position; a chunk begins at a multiple of its size.
fn own_keys(op: &Attention, row: usize, rows: usize, keys: usize) -> std::ops::Range<usize> {
    if !op.causal {
        return 0..keys;
    }
    let position = keys - rows + row;
    let window = op.window.map_or(0, |w| (position + 1).saturating_sub(w as usize));
    let chunk = op.chunk.map_or(0, |c| position / c as usize * c as usize);
    window.max(chunk)..position + 1
}

/// Rows `first .. first + count` of a matrix.
fn part(value: &Value<f64>, first: usize, count: usize) -> Option<Value<f64>> {
    let width: usize = value.shape().iter().skip(1).product();
    let rows = numbers(value).get(first * width..(first + count) * width)?.to_vec();
    Value::float(vec![count, width], rows).ok()
}

/// Query heads read keys and values of other heads than theirs.
/// Keys and values are mapped together and each alone, since kernels compute their offsets apart.
pub(super) fn heads(trials: &mut Trials<'_, '_>) {
    let Op::Attention(op) = &trials.context.cut.op else { return };
    let op = op.clone();
    let (heads, kv) = (op.heads as usize, op.kv_heads as usize);
    // All query heads share the only one.
    if kv == 1 {
        return;
    }
    let group = heads / kv;
    let maps: [(&str, &dyn Fn(usize) -> usize); 7] = [
        ("query head h reads key/value head h mod the count of them", &|h| h % kv),
        ("every query head reads key/value head 0", &|_| 0),
        ("every query head reads the last key/value head", &|_| kv - 1),
        ("query heads read the next key/value head", &|h| (h / group + 1) % kv),
        ("query heads read the key/value head before", &|h| (h / group + kv - 1) % kv),
        ("key/value heads are read in reverse", &|h| kv - 1 - h / group),
        ("neighbouring key/value heads are exchanged", &|h| ((h / group) ^ 1).min(kv - 1)),
    ];
    for (note, map) in maps {
        for (what, of_keys, of_values) in
            [("", true, true), (", of keys only", true, false), (", of values only", false, true)]
        {
            let prediction = predict_mapped(trials, &op, map, of_keys, of_values);
            trials.cut(Cause::WrongHead, Rank::Placed, format!("{note}{what}"), prediction);
        }
    }
}

/// Attention whose query head `h` reads key/value head `map(h)`.
/// `None` if the map is the operator's own.
/// Keys are mapped if `of_keys`, values if `of_values`; the others keep the right map.
fn predict_mapped(
    trials: &mut Trials<'_, '_>,
    op: &Attention,
    map: &dyn Fn(usize) -> usize,
    of_keys: bool,
    of_values: bool,
) -> Option<Prediction> {
    let group = (op.heads / op.kv_heads) as usize;
    // The map is the right one for this number of heads.
    if (0..op.heads as usize).all(|h| map(h) == h / group) {
        return None;
    }
    let own = |h: usize| h / group;
    let mut inputs = trials.context.cut.inputs.clone();
    // Keys and values are laid out once per query head, so that any map can be expressed.
    let spread = |value: &Value<f64>, size: usize, map: &dyn Fn(usize) -> usize| -> Option<Value<f64>> {
        let all = numbers(value);
        let width = op.kv_heads as usize * size;
        let row = |row: &[f64]| -> Vec<f64> {
            (0..op.heads as usize).flat_map(|h| row[map(h) * size..(map(h) + 1) * size].to_vec()).collect()
        };
        let values: Vec<f64> = all.chunks(width).flat_map(row).collect();
        Value::float(vec![value.shape()[0], op.heads as usize * size], values).ok()
    };
    inputs[1] = spread(&inputs[1], op.head_dim as usize, if of_keys { map } else { &own })?;
    inputs[2] = spread(&inputs[2], op.value_size() as usize, if of_values { map } else { &own })?;
    trials.eval(&Attention { kv_heads: op.heads, ..op.clone() }.into(), &inputs)
}
