//! Inputs left out, exchanged, read from elsewhere, or in another type.
//!
//! Each change predicts the whole output, evaluated on the cut; a change that predicts the exact result explains nothing.

use super::rivals;
use crate::Cause;
use crate::cut::{like, matrix_sizes, numbers};
use crate::error_map::block_sizes;
use crate::output_view::Prediction;
use crate::trials::{Rank, Trials};
use tapml_graph::{DType, Tensor};
use tapml_reference::Value;

/// Elements of an input, after cutting, above which only the simplest changes are tried.
const LARGE: usize = 1 << 17;

/// Whether input `i` is large even in the cut.
pub(super) fn large(trials: &Trials<'_, '_>, i: usize) -> bool {
    matrix_sizes(&trials.context.cut.inputs[i]).iter().product::<usize>() > LARGE
}

/// Input `i` for people.
pub(super) fn label(trials: &Trials<'_, '_>, i: usize) -> String {
    match trials.context.evidence.call.weights.get(i) {
        Some(Some(weight)) => format!("input {i} (`{weight}`)"),
        _ => format!("input {i}"),
    }
}

/// Inputs that hold numbers.
pub(super) fn floats(trials: &Trials<'_, '_>) -> Vec<usize> {
    let inputs = &trials.context.cut.inputs;
    (0..inputs.len()).filter(|&i| matches!(inputs[i], Value::Float(_))).collect()
}

/// Each number of input `i` changed.
pub(super) fn predict_mapped(
    trials: &mut Trials<'_, '_>,
    i: usize,
    map: impl Fn(f64) -> f64,
) -> Option<Prediction> {
    let input = &trials.context.cut.inputs[i];
    let changed = like(input, numbers(input).into_iter().map(map).collect());
    trials.with_input(i, changed)
}

/// Zeros or ones in the place of an input, an optional input not given, or one with the opposite sign.
pub(super) fn left_out(trials: &mut Trials<'_, '_>) {
    for i in floats(trials).into_iter().filter(|&i| !large(trials, i)).collect::<Vec<_>>() {
        let name = label(trials, i);
        let zeros = predict_mapped(trials, i, |_| 0.0).filter(|p| p.iter().flatten().any(|&v| v != 0.0));
        let ones = predict_mapped(trials, i, |_| 1.0);
        let removed = predict_removed(trials, i);
        let vector =
            numbers(&trials.context.cut.inputs[i]).len() == matrix_sizes(&trials.context.cut.inputs[i])[1];
        // What is added before a product or a function is no sum of columns, but its name tells of it.
        let named_bias = trials.context.evidence.call.weights[i].as_ref().is_some_and(|w| w.contains("bias"));
        let added = vector && zeros.as_ref().is_some_and(|zeros| adds_to_columns(trials, i, zeros));
        let optional = removed.is_some() && removed == zeros;
        if removed.is_some() && !optional {
            let scales = removed == ones;
            let cause = if scales { Cause::MissingScale } else { Cause::MissingTerm };
            trials.cut(cause, Rank::Named, format!("{name} is left out"), removed);
        }
        let (cause, note) = if added || optional || named_bias {
            (Cause::MissingBias, format!("{name} is not added"))
        } else {
            (Cause::MissingTerm, format!("{name} is left out, as if it were zero"))
        };
        trials.cut(cause, Rank::Named, note, zeros);
        let narrow = vector || matrix_sizes(&trials.context.cut.inputs[i])[1] == 1;
        let cause = if narrow { Cause::MissingScale } else { Cause::MissingTerm };
        trials.cut(cause, Rank::Named, format!("{name} is not multiplied by, as if it were one"), ones);
        let negated = predict_mapped(trials, i, |v| -v);
        trials.cut(Cause::WrongSign, Rank::Named, format!("{name} has the opposite sign"), negated);
        let [_, columns] = matrix_sizes(&trials.context.cut.inputs[i]);
        let half = predict_flipped(trials, i, |c| 2 * c >= columns);
        trials.cut(
            Cause::WrongSign,
            Rank::Placed,
            format!("the second half of the columns of {name} has the opposite sign"),
            half,
        );
    }
}

fn predict_flipped(
    trials: &mut Trials<'_, '_>,
    i: usize,
    which: impl Fn(usize) -> bool,
) -> Option<Prediction> {
    let input = &trials.context.cut.inputs[i];
    let [_, columns] = matrix_sizes(input);
    let values = numbers(input).into_iter().enumerate();
    let values = values.map(|(at, v)| if which(at % columns.max(1)) { -v } else { v }).collect();
    trials.with_input(i, like(input, values))
}

/// The call without its last input, if that is input `i` and may be absent.
fn predict_removed(trials: &mut Trials<'_, '_>, i: usize) -> Option<Prediction> {
    let inputs = &trials.context.cut.inputs;
    let fewer = inputs[..i].to_vec();
    if i + 1 != inputs.len() {
        return None;
    }
    trials.eval(&trials.context.cut.op.clone(), &fewer)
}

/// Whether the exact result is that with zeros for input `i`, plus the input in each row.
fn adds_to_columns(trials: &Trials<'_, '_>, i: usize, zeros: &Prediction) -> bool {
    let added = numbers(&trials.context.cut.inputs[i]);
    let outs = trials.context.cut.view.outs.iter().zip(zeros);
    let mut same = outs.map(|(out, zeros)| {
        out.width == added.len()
            && (0..zeros.len()).all(|at| {
                let sum = zeros[at] + added[at % out.width];
                (sum - out.exact[at]).abs() <= 1e-9 * (sum.abs() + added[at % out.width].abs())
            })
    });
    same.all(|s| s)
}

/// Input `i` as the numbers of input `from`, one after the other, up to its last.
fn flat_from(trials: &Trials<'_, '_>, i: usize, from: usize) -> Option<Value<f64>> {
    let source = numbers(&trials.context.cut.whole[from]);
    // A read beyond a buffer gives its last element, as devices with bounds on indices do.
    let last = source.len().checked_sub(1)?;
    let [rows, columns] = matrix_sizes(&trials.context.cut.whole[i]);
    let kept = trials.context.cut.kept[i].clone().unwrap_or_else(|| (0..rows).collect());
    let places = kept.iter().flat_map(|r| (0..columns).map(move |c| r * columns + c));
    like(&trials.context.cut.inputs[i], places.map(|at| source[at.min(last)]).collect())
}

/// Two inputs of different shapes, each read in the place of the other.
fn exchanged_flat(trials: &mut Trials<'_, '_>, i: usize, j: usize) {
    if large(trials, i) || large(trials, j) {
        return;
    }
    let mut inputs = trials.context.cut.inputs.clone();
    let (Some(a), Some(b)) = (flat_from(trials, i, j), flat_from(trials, j, i)) else { return };
    (inputs[i], inputs[j]) = (a, b);
    let prediction = trials.eval(&trials.context.cut.op.clone(), &inputs);
    let note = format!("{} and {} are exchanged", label(trials, i), label(trials, j));
    trials.cut(Cause::SwappedOperands, Rank::Named, note, prediction);
}

/// Two inputs taken for each other.
pub(super) fn try_exchanged(trials: &mut Trials<'_, '_>) {
    let indices = floats(trials);
    for (at, &i) in indices.iter().enumerate() {
        for &j in &indices[at + 1..] {
            // A kernel that takes one buffer for another reads it with the strides of the one that it expects.
            if trials.context.cut.inputs[i].shape() != trials.context.cut.inputs[j].shape() {
                exchanged_flat(trials, i, j);
                continue;
            }
            let mut inputs = trials.context.cut.inputs.clone();
            inputs.swap(i, j);
            let prediction = trials.eval(&trials.context.cut.op.clone(), &inputs);
            let note = format!("{} and {} are exchanged", label(trials, i), label(trials, j));
            trials.cut(Cause::SwappedOperands, Rank::Named, note, prediction);
            // One of them in both places.
            for (from, to) in [(i, j), (j, i)] {
                let mut inputs = trials.context.cut.inputs.clone();
                inputs[to] = inputs[from].clone();
                let prediction = trials.eval(&trials.context.cut.op.clone(), &inputs);
                let note = format!("{} is read in the place of {}", label(trials, from), label(trials, to));
                let rival = Some("an index that leaves out an offset between the two reads the same");
                trials.subsample_with_rival(Cause::SwappedOperands, Rank::Placed, note, prediction, rival);
            }
        }
    }
}

/// Where an element of a matrix of these rows and columns is read from; `None` reads zero.
type ElementSource<'f> = dyn Fn(usize, usize) -> Option<usize> + 'f;

/// Each input read from elsewhere: rows and columns off by one, exchanged, transposed, with another stride.
pub(super) fn try_moved(trials: &mut Trials<'_, '_>) {
    for i in 0..trials.context.cut.inputs.len() {
        let whole = &trials.context.cut.whole[i];
        let [rows, columns] = matrix_sizes(whole);
        let name = label(trials, i);
        if rows * columns < 2 || large(trials, i) {
            continue;
        }
        let mut test = |cause: Cause, note: String, source: &ElementSource<'_>| {
            let input = trials.context.cut.gather(i, source);
            let prediction = trials.with_input(i, input);
            trials.cut(cause, Rank::Placed, note, prediction);
        };
        if rows > 1 {
            of_rows(&mut test, &name, rows, columns);
        }
        if columns > 1 {
            of_columns(&mut test, &name, rows, columns);
        }
        if columns > 4 {
            lanes(&mut test, &name, columns);
        }
        let blocks = block_sizes(&trials.context.cut.op.attributes(), columns);
        for (attribute, size) in blocks {
            of_blocks(trials, i, &name, (&attribute, size), columns);
        }
        ids(trials, i, &name);
    }
}

/// Rows read from other rows; places past the end stay at the last element.
fn of_rows(test: &mut dyn FnMut(Cause, String, &ElementSource<'_>), name: &str, rows: usize, columns: usize) {
    let last = rows - 1;
    let total = rows * columns;
    test(Cause::OffByOne, format!("{name} is read one row too early"), &|r, c| {
        Some(r.saturating_sub(1) * columns + c)
    });
    test(Cause::OffByOne, format!("{name} is read one row too late"), &|r, c| {
        Some((r + 1).min(last) * columns + c)
    });
    test(Cause::OffByOne, format!("{name} is read one row too early, zeros before the first"), &|r, c| {
        Some(r.checked_sub(1)? * columns + c)
    });
    test(Cause::WrongStride, format!("every row reads row 0 of {name}"), &|_, c| Some(c));
    test(Cause::WrongStride, format!("every row reads the last row of {name}"), &|_, c| {
        Some(last * columns + c)
    });
    test(Cause::RowsSwapped, format!("neighbouring rows of {name} are exchanged"), &|r, c| {
        Some((r ^ 1).min(last) * columns + c)
    });
    test(Cause::RowsSwapped, format!("rows of {name} are read in reverse"), &|r, c| {
        Some((last - r) * columns + c)
    });
    if columns > 1 {
        test(Cause::Transposed, format!("{name} is read transposed"), &|r, c| Some(c * rows + r));
        for (what, stride) in [
            ("one more", columns + 1),
            ("one less", columns - 1),
            ("twice", 2 * columns),
            ("half", columns / 2),
        ] {
            let note =
                format!("rows of {name} are read {stride} elements apart, {what} than their {columns}");
            let note = if what == "twice" || what == "half" { note.replace(" than", " of") } else { note };
            test(Cause::WrongStride, note, &|r, c| Some((r * stride + c).min(total - 1)));
        }
    }
}

/// Columns read from other columns of their row, or from the next row where `name` is read as one list.
fn of_columns(
    test: &mut dyn FnMut(Cause, String, &ElementSource<'_>),
    name: &str,
    rows: usize,
    columns: usize,
) {
    let (half, last, total) = (columns / 2, columns - 1, rows * columns);
    test(Cause::OffByOne, format!("{name} is read one element too late"), &|r, c| {
        Some((r * columns + c + 1).min(total - 1))
    });
    test(Cause::OffByOne, format!("{name} is read one element too early"), &|r, c| {
        Some((r * columns + c).saturating_sub(1))
    });
    test(Cause::OffByOne, format!("{name} is read one column too late, at most the last"), &|r, c| {
        Some(r * columns + (c + 1).min(last))
    });
    test(Cause::OffByOne, format!("{name} is read one column too early, at least the first"), &|r, c| {
        Some(r * columns + c.saturating_sub(1))
    });
    test(Cause::ColumnsSwapped, format!("neighbouring columns of {name} are exchanged"), &|r, c| {
        Some(r * columns + (c ^ 1).min(last))
    });
    test(Cause::ColumnsSwapped, format!("the halves of the rows of {name} are exchanged"), &|r, c| {
        Some(r * columns + (c + half) % columns)
    });
    test(Cause::ColumnsSwapped, format!("the columns of {name} are read in reverse"), &|r, c| {
        Some(r * columns + last - c)
    });
    test(Cause::WrongStride, format!("every column reads column 0 of {name}"), &|r, _| Some(r * columns));
    if columns.is_multiple_of(2) {
        test(
            Cause::WrongStride,
            format!("the halves of the rows of {name} are read as if interleaved"),
            &|r, c| Some(r * columns + c % 2 * half + c / 2),
        );
        test(
            Cause::WrongStride,
            format!("neighbours in the rows of {name} are read as if halves apart"),
            &|r, c| Some(r * columns + c % half * 2 + c / half),
        );
        test(
            Cause::WrongStride,
            format!("the second half of the rows of {name} is read from the first"),
            &|r, c| Some(r * columns + c % half),
        );
    }
}

/// One of two or four neighbouring columns read from another of them, or from the next one.
fn lanes(test: &mut dyn FnMut(Cause, String, &ElementSource<'_>), name: &str, columns: usize) {
    for period in [2usize, 4] {
        let pairs = (0..period).flat_map(|lane| (0..=period).map(move |from| (lane, from)));
        for (lane, from) in
            pairs.filter(|(lane, from)| lane != from && (*from < period || lane + 1 == period))
        {
            let cause = if from.abs_diff(lane) == 1 { Cause::OffByOne } else { Cause::WrongStride };
            let note = format!("columns {lane} of each {period} of {name} are read from {from} of them");
            test(cause, note, &|r, c| {
                let at = if c % period == lane { (c - lane + from).min(columns - 1) } else { c };
                Some(r * columns + at)
            });
        }
    }
}

/// Runs of columns, such as heads, read from other runs.
fn of_blocks(
    trials: &mut Trials<'_, '_>,
    i: usize,
    name: &str,
    (attribute, size): (&str, usize),
    columns: usize,
) {
    let count = columns / size;
    let maps: [(&str, &dyn Fn(usize) -> usize); 5] = [
        ("the next one", &|b| (b + 1) % count),
        ("the one before", &|b| (b + count - 1) % count),
        ("the first", &|_| 0),
        ("those in reverse", &|b| count - 1 - b),
        ("their neighbours", &|b| (b ^ 1).min(count - 1)),
    ];
    for (what, map) in maps {
        let input = trials.context.cut.gather(i, |r, c| Some(r * columns + map(c / size) * size + c % size));
        let prediction = trials.with_input(i, input);
        let note = format!("runs of {size} columns (`{attribute}`) of {name} are read from {what}");
        trials.cut(Cause::WrongHead, Rank::Placed, note, prediction);
    }
}

/// Indices one too large or too small.
fn ids(trials: &mut Trials<'_, '_>, i: usize, name: &str) {
    let input = &trials.context.cut.inputs[i];
    if input.as_ids().is_err() {
        return;
    }
    let exchanged = numbers(input).iter().map(|&id| f64::from(id as u32 ^ 1)).collect();
    let prediction = trials.with_input(i, like(input, exchanged));
    let note = format!("neighbouring indices of {name} are exchanged");
    trials.cut(Cause::RowsSwapped, Rank::Placed, note, prediction);
    for shift in [1.0, -1.0] {
        let moved = numbers(input).iter().map(|id| (id + shift).max(0.0)).collect();
        let prediction = trials.with_input(i, like(input, moved));
        trials.cut(
            Cause::OffByOne,
            Rank::Placed,
            format!("the indices of {name} are off by {shift:+}"),
            prediction,
        );
    }
}

/// Sizes of steps and tiles whose incomplete last one is often forgotten.
const STEPS: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

/// The last columns or rows of an input left out of sums, or the first.
pub(super) fn tails(trials: &mut Trials<'_, '_>) {
    for i in floats(trials) {
        let [rows, columns] = matrix_sizes(&trials.context.cut.whole[i]);
        let name = label(trials, i);
        if large(trials, i) {
            continue;
        }
        let mut lost: Vec<usize> = STEPS.iter().flat_map(|s| [columns % s, *s]).chain([1]).collect();
        lost.retain(|&t| t > 0 && t < columns);
        lost.sort_unstable();
        lost.dedup();
        for tail in lost {
            let input = trials.context.cut.gather(i, |r, c| (c + tail < columns).then_some(r * columns + c));
            let prediction = trials.with_input(i, input);
            let normed = prediction.as_ref().and_then(|p| of_the_sum_only(trials, p));
            let note = format!("the last {tail} of {columns} columns of {name} are left out");
            let rival = rivals::of_an_end(tail, columns);
            trials.subsample_with_rival(Cause::TailDropped, Rank::Placed, note.clone(), prediction, rival);
            trials.subsample_with_rival(
                Cause::TailDropped,
                Rank::Placed,
                format!("{note} of the sum"),
                normed,
                rival,
            );
        }
        for (attribute, size) in block_sizes(&trials.context.cut.op.attributes(), columns) {
            for tail in [1, 2, 4, 8, 16, size % 16, size % 32].into_iter().filter(|&t| t > 0 && t < size) {
                let input =
                    trials.context.cut.gather(i, |r, c| (c % size + tail < size).then_some(r * columns + c));
                let prediction = trials.with_input(i, input);
                let note =
                    format!("the last {tail} of each {size} columns (`{attribute}`) of {name} are left out");
                let rival = rivals::of_an_end(tail, size);
                trials.subsample_with_rival(Cause::TailDropped, Rank::Placed, note, prediction, rival);
            }
            for lost in [1, 4] {
                let input =
                    trials.context.cut.gather(i, |r, c| (c % size >= lost).then_some(r * columns + c));
                let prediction = trials.with_input(i, input);
                let note =
                    format!("the first {lost} of each {size} columns (`{attribute}`) of {name} are left out");
                trials.cut(Cause::OffByOne, Rank::Placed, note, prediction);
            }
        }
        let input = trials.context.cut.gather(i, |r, c| (c > 0).then_some(r * columns + c));
        let prediction = trials.with_input(i, input);
        let normed = prediction.as_ref().and_then(|p| of_the_sum_only(trials, p));
        trials.cut(
            Cause::OffByOne,
            Rank::Placed,
            format!("the first column of {name} is left out"),
            prediction,
        );
        trials.cut(
            Cause::OffByOne,
            Rank::Placed,
            format!("the first column of {name} is left out of the sum"),
            normed,
        );
        if rows > 1 {
            let input = trials.context.cut.gather(i, |r, c| (r + 1 < rows).then_some(r * columns + c));
            let prediction = trials.with_input(i, input);
            trials.cut(
                Cause::TailDropped,
                Rank::Placed,
                format!("the last row of {name} is left out"),
                prediction,
            );
        }
    }
}

/// Where leaving out some columns scales what remains of each row by one factor, as in a norm: all of the row scaled so.
fn of_the_sum_only(trials: &Trials<'_, '_>, prediction: &Prediction) -> Option<Prediction> {
    let mut scaled = Vec::new();
    for (out, predicted) in trials.context.cut.view.outs.iter().zip(prediction) {
        let mut values = Vec::with_capacity(predicted.len());
        for (exact, predicted) in out.exact.chunks(out.width).zip(predicted.chunks(out.width)) {
            let pairs = exact.iter().zip(predicted).filter(|(e, p)| **e != 0.0 && **p != 0.0);
            let factors: Vec<f64> = pairs.map(|(e, p)| p / e).collect();
            let first = *factors.first()?;
            if factors.iter().any(|f| (f / first - 1.0).abs() > 1e-9) {
                return None;
            }
            values.extend(exact.iter().map(|e| e * first));
        }
        scaled.push(values);
    }
    (scaled != *prediction).then_some(scaled)
}

/// Inputs rounded to 16 bits, or their bits read as another type.
pub(super) fn cast(trials: &mut Trials<'_, '_>) {
    for i in floats(trials) {
        let name = label(trials, i);
        if !large(trials, i) {
            let whole =
                predict_mapped(trials, i, f64::trunc).filter(|p| p.iter().flatten().any(|&v| v != 0.0));
            trials.cut(Cause::WrongCast, Rank::Named, format!("{name} passes through an integer"), whole);
        }
        let stored = trials.context.evidence.call.inputs[i].dtype();
        if large(trials, i) && stored.size() != 2 {
            continue;
        }
        for narrow in [DType::F16, DType::BF16] {
            if stored == narrow {
                continue;
            }
            let input = &trials.context.cut.inputs[i];
            let numbers = numbers(input);
            let rounded = Tensor::from_f64(narrow, vec![numbers.len()], &numbers).map(|t| t.to_f64()).ok();
            let prediction =
                trials.with_input(i, rounded.and_then(|r| like(&trials.context.cut.inputs[i], r)));
            trials.cut(
                Cause::ConversionOrder,
                Rank::Placed,
                format!("{name} is rounded to {narrow} first"),
                prediction,
            );
            if stored.size() == 2 {
                let prediction = reread(trials, i, stored, narrow);
                let note = format!("the bits of {name}, which is {stored}, are read as {narrow}");
                trials.cut(Cause::WrongCast, Rank::Named, note, prediction);
            }
        }
    }
}

/// The input with the bits of `stored` read as `other`, a type of the same size.
fn reread(trials: &mut Trials<'_, '_>, i: usize, stored: DType, other: DType) -> Option<Prediction> {
    let input = &trials.context.cut.inputs[i];
    let numbers = numbers(input);
    let tensor = Tensor::from_f64(stored, vec![numbers.len()], &numbers).ok()?;
    let tensor = Tensor::new(other, vec![numbers.len()], tensor.bytes().clone()).ok()?;
    trials.with_input(i, like(input, tensor.to_f64()))
}
