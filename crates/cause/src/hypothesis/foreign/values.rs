//! What a platform does to the values of an operator of others: other dtypes, special numbers, rounding, other layouts, and
//! results that are not written.
//!
//! Each reading changes all elements alike, and is tested on all inputs of floats together and on each alone.

use super::subject::{Assumed, ForeignSubject, evaluate, like, numbers, undeclared_outputs};
use crate::Cause;
use crate::trials::{Rank, Trials};
use tapml_graph::{DType, Tensor};

/// What becomes of a value.
/// Values are those of the input in `f64`.
type ValueChange = fn(f64) -> f64;

/// Another reading of floats.
///
/// `how` continues the input's name, `when` says which values show it.
struct Reading {
    cause: Cause,
    how: &'static str,
    when: &'static str,
    change: ValueChange,
}

/// A number as a type of 16 bits holds it; NaN if the type cannot be made.
fn round_through(dtype: DType, value: f64) -> f64 {
    Tensor::from_f64(dtype, vec![1], &[value]).map_or(f64::NAN, |tensor| tensor.to_f64()[0])
}

/// TensorFloat-32: 10 bits of mantissa, rounded to the nearest.
/// Halves go to the even neighbour, as in other rounding to nearest.
fn tf32(value: f64) -> f64 {
    // An f32 has 23 bits of mantissa.
    const DROPPED: u32 = 13;
    let bits = (value as f32).to_bits();
    let half = (1u32 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
    f64::from(f32::from_bits(bits.wrapping_add(half) >> DROPPED << DROPPED))
}

/// The readings of special numbers come first, since the others change nearly every value.
const READINGS: &[Reading] = &[
    Reading {
        cause: Cause::NanIgnored,
        how: "has NaN taken for 0",
        when: "a NaN",
        change: |v| if v.is_nan() { 0.0 } else { v },
    },
    Reading {
        cause: Cause::NanIgnored,
        how: "has NaN taken for the smallest number",
        when: "a NaN",
        change: |v| if v.is_nan() { f64::NEG_INFINITY } else { v },
    },
    Reading {
        cause: Cause::NanIgnored,
        how: "has NaN taken for the largest number",
        when: "a NaN",
        change: |v| if v.is_nan() { f64::INFINITY } else { v },
    },
    Reading {
        cause: Cause::FlushedDenormals,
        how: "has denormal numbers taken for 0",
        when: "denormal numbers",
        change: |v| if v.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 } else { v },
    },
    Reading {
        cause: Cause::WrongCast,
        how: "passes through f16",
        when: "values that f16 does not hold",
        change: |v| round_through(DType::F16, v),
    },
    Reading {
        cause: Cause::WrongCast,
        how: "passes through bf16",
        when: "values that bf16 does not hold",
        change: |v| round_through(DType::BF16, v),
    },
    Reading {
        cause: Cause::WrongCast,
        how: "passes through tf32, as products of tensor cores do",
        when: "values that tf32 does not hold",
        change: tf32,
    },
    Reading {
        cause: Cause::WrongCast,
        how: "is cut off to integers",
        when: "values that are no integers",
        change: f64::trunc,
    },
    Reading {
        cause: Cause::Rounding,
        how: "is rounded to integers before the operator",
        when: "values that are no integers",
        change: f64::round_ties_even,
    },
    Reading {
        cause: Cause::Rounding,
        how: "is rounded with halves away from zero",
        when: "values halfway between integers",
        change: f64::round,
    },
];

/// All inputs of floats read otherwise, then each.
/// The reading of all inputs is tried before that of each.
pub(in crate::hypothesis) fn cast(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    let floats: Vec<usize> =
        (0..subject.inputs.len()).filter(|&i| subject.inputs[i].dtype().is_float()).collect();
    // With one input the two are the same.
    let each = floats.iter().filter(|_| floats.len() > 1).map(|&i| vec![i]);
    for which in std::iter::once(floats.clone()).chain(each) {
        for reading in READINGS {
            read(trials, &subject, &which, reading);
        }
    }
    try_quantized(trials, &subject);
    try_floored(trials, &subject);
}

/// One reading of some inputs. One that changes no value is not tested.
fn read(trials: &mut Trials<'_, '_>, subject: &ForeignSubject, which: &[usize], reading: &Reading) {
    let mut inputs = subject.inputs.clone();
    let mut changed = false;
    for &index in which {
        let own = inputs[index].to_f64();
        let values: Vec<f64> = own.iter().map(|&v| (reading.change)(v)).collect();
        // A NaN that stays one is no change.
        changed |= own.iter().zip(&values).any(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
        let Some(other) = like(&inputs[index], &values) else { return };
        inputs[index] = other;
    }
    if !changed {
        return;
    }
    let what = match which {
        [index] => subject.name(*index),
        _ => "every input of floats".into(),
    };
    let assumed = Assumed {
        cause: reading.cause,
        rank: if which.len() == subject.inputs.len() { Rank::Named } else { Rank::Placed },
        note: format!("{what} {}", reading.how),
        rule: format!("{what} has {}", reading.when),
    };
    subject.test_inputs(trials, assumed, inputs);
}

/// What is quantised rounded otherwise than to the nearest even integer.
/// The input is replaced by the quotient rounded in another way, times the scale. Only a single scale is tried.
fn try_quantized(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    let [x, scale, ..] = subject.inputs.as_slice() else { return };
    let (true, Some(&scale)) =
        (subject.op.name() == "QuantizeLinear" && scale.len() == 1, scale.to_f64().first())
    else {
        return;
    };
    let ways: [(ValueChange, _, _); 3] = [
        (f64::round, "halves are rounded away from zero", "a quotient halfway between integers"),
        (f64::trunc, "quotients are cut off", "a quotient that is no integer"),
        (f64::floor, "quotients are rounded down", "a quotient that is no integer"),
    ];
    for (way, how, when) in ways {
        let assumed = Assumed {
            cause: Cause::Rounding,
            rank: Rank::Named,
            note: format!("{how}, not to the nearest even integer"),
            rule: format!("there is {when}"),
        };
        let values: Vec<f64> =
            // In f32, as the standard divides; then scaled back, so that the operator's own rounding is exact.
            x.to_f64().iter().map(|v| way((*v as f32 / scale as f32).into()) * scale).collect();
        if let Some(x) = like(x, &values) {
            subject.test_input(trials, assumed, 0, x);
        }
    }
}

/// Quotients of integers rounded down instead of towards zero.
/// ONNX cuts quotients of integers off, as C does; floor division differs where one operand is negative.
fn try_floored(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    if subject.op.name() != "Div" || subject.inputs.iter().any(|input| input.dtype().is_float()) {
        return;
    }
    // The division itself is evaluated on floats, because that of integers is already cut off.
    let wide = |input: &Tensor| Tensor::from_f64(DType::F64, input.shape().to_vec(), &input.to_f64()).ok();
    let Some(inputs) = subject.inputs.iter().map(wide).collect::<Option<Vec<Tensor>>>() else { return };
    let Ok(op) = subject.op.with_outputs(undeclared_outputs(&subject.op)) else { return };
    let Some(outputs) = evaluate(trials, &op, &inputs, &subject.constants) else { return };
    let dtype = subject.inputs.first().map_or(DType::I64, Tensor::dtype);
    let floor = |out: &Tensor| {
        let values: Vec<f64> = out.to_f64().into_iter().map(f64::floor).collect();
        numbers(dtype, out.shape(), &values)
    };
    let Some(floored) = outputs.iter().map(floor).collect::<Option<Vec<Tensor>>>() else { return };
    let assumed = Assumed {
        cause: Cause::Rounding,
        rank: Rank::Named,
        note: "quotients are rounded down, not towards zero".into(),
        rule: "a quotient is negative and no integer".into(),
    };
    subject.test_outputs(trials, assumed, &floored);
}

/// Inputs whose elements are taken in another order.
/// Channels first and last, groups taken in turns, matrices transposed, one batch for all, vectors along the other axis, paddings.
pub(in crate::hypothesis) fn try_arranged(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    // Operators without the attribute count as one group.
    let group =
        subject.op.attributes().get("group").and_then(serde_json::Value::as_u64).unwrap_or(1) as usize;
    for index in 0..subject.inputs.len() {
        let (shape, name) = (subject.inputs[index].shape().to_vec(), subject.name(index));
        let axes = shape.len();
        let sizes = format!("{axes} axes");
        if axes >= 3 {
            let (batch, channels) = (shape[0], shape[1]);
            let pixels: usize = shape[2..].iter().product();
            let of = |n: usize, c: usize, p: usize| (n * pixels + p) * channels + c;
            let nhwc = order(&[batch, channels, pixels], |at| of(at[0], at[1], at[2]));
            let what = "is read with its channels last";
            test_order(trials, &subject, index, Cause::WrongStride, (what, &sizes), nhwc);
            // The inverse of the map above.
            let nchw = order(&[batch, channels, pixels], |at| {
                let flat = at[1] * pixels + at[2];
                let (p, c) = (flat / channels, flat % channels);
                (at[0] * channels + c) * pixels + p
            });
            let what = "is read with its channels first";
            test_order(trials, &subject, index, Cause::WrongStride, (what, &sizes), nchw);
            if group > 1 && channels.is_multiple_of(group) {
                let per = channels / group;
                let turns = order(&[batch, channels, pixels], |at| {
                    let (g, c) = (at[1] / per, at[1] % per);
                    // Channel `c` of group `g` lies where groups take turns.
                    (at[0] * channels + c * group + g) * pixels + at[2]
                });
                let what = "has the channels of its groups taken in turns";
                test_order(
                    trials,
                    &subject,
                    index,
                    Cause::WrongStride,
                    (what, "several groups of several channels"),
                    turns,
                );
            }
        }
        if axes >= 2 {
            let (rows, columns) = (shape[axes - 2], shape[axes - 1]);
            let outer: usize = shape[..axes - 2].iter().product();
            // As if each matrix lay in memory column by column.
            let order = order(&[outer, rows, columns], |at| (at[0] * columns + at[2]) * rows + at[1]);
            test_order(
                trials,
                &subject,
                index,
                Cause::Transposed,
                ("is read with rows and columns exchanged", &sizes),
                order,
            );
        }
        if axes >= 3 && shape[0] > 1 {
            let one: usize = shape[1..].iter().product();
            let first = (0..shape[0] * one).map(|at| at % one).collect();
            let rule = ("has its first batch taken for all", "several batches");
            test_order(trials, &subject, index, Cause::WrongStride, rule, first);
        }
        broadcast(trials, &subject, index, &name);
    }
    try_padded(trials, &subject);
}

/// For each element of an array of these sizes the place that it is read from.
/// The result is row-major, as the tensor is; places are indices into its elements.
fn order(sizes: &[usize; 3], from: impl Fn([usize; 3]) -> usize) -> Vec<usize> {
    let [a, b, c] = *sizes;
    (0..a * b * c).map(|at| from([at / (b * c), at / c % b, at % c])).collect()
}

/// Tests an input whose elements are read from these places.
/// `how` and `when` are a clause for the note and for the rule.
fn test_order(
    trials: &mut Trials<'_, '_>,
    subject: &ForeignSubject,
    index: usize,
    cause: Cause,
    (how, when): (&str, &str),
    from: Vec<usize>,
) {
    let name = subject.name(index);
    let input = &subject.inputs[index];
    let own = input.to_f64();
    // A place outside the input would be a wrong map, not a wrong reading.
    let values: Option<Vec<f64>> = from.iter().map(|&at| own.get(at).copied()).collect();
    let Some(values) = values.filter(|values| *values != own) else { return };
    let Some(other) = like(input, &values) else { return };
    let (note, rule) = (format!("{name} {how}"), format!("{name} has {when}"));
    subject.test_input(trials, Assumed { cause, rank: Rank::Placed, note, rule }, index, other);
}

/// A vector that is repeated along the other axis of a matrix.
/// The vector becomes a matrix of one column, which the operator then repeats along the other axis.
fn broadcast(trials: &mut Trials<'_, '_>, subject: &ForeignSubject, index: usize, name: &str) {
    let input = &subject.inputs[index];
    let [len] = *input.shape() else { return };
    let Ok(column) = Tensor::from_f64(DType::F64, vec![len, 1], &input.to_f64()) else { return };
    if !input.dtype().is_float() {
        return;
    }
    let assumed = Assumed {
        cause: Cause::Transposed,
        rank: Rank::Placed,
        note: format!("{name} is repeated along the columns, not along the rows"),
        rule: format!("{name} has 1 axis, as long as the last but one of the other input"),
    };
    subject.test_input(trials, assumed, index, column);
}

/// Paddings that hold zeros where the standard has them count for nothing.
/// The input is padded with zeros beforehand, and the operator gets no padding. For a maximum or a mean that is another result.
fn try_padded(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    let mut attributes = subject.op.attributes().clone();
    let pads = attributes.remove("pads").and_then(|pads| serde_json::from_value::<Vec<usize>>(pads).ok());
    let (Some(pads), Some(input)) = (pads, subject.inputs.first()) else { return };
    let axes = input.shape().len();
    // ONNX lists the beginnings of all spatial axes, then their ends. The bound keeps the padded input small.
    if axes < 3 || pads.len() != 2 * (axes - 2) || pads.iter().any(|&pad| pad > 1 << 10) {
        return;
    }
    let half = pads.len() / 2;
    let (mut shape, mut begin) = (input.shape().to_vec(), vec![0; axes]);
    begin[2..].copy_from_slice(&pads[..half]);
    let around = pads[..half].iter().zip(&pads[half..]);
    shape[2..].iter_mut().zip(around).for_each(|(size, (before, behind))| *size += before + behind);
    let own = input.to_f64();
    let len: usize = shape.iter().product();
    let mut values = vec![0.0; len];
    for (flat, value) in own.iter().enumerate() {
        let (mut rest, mut to, mut stride) = (flat, 0, 1);
        for axis in (0..axes).rev() {
            to += (rest % input.shape()[axis] + begin[axis]) * stride;
            rest /= input.shape()[axis];
            stride *= shape[axis];
        }
        values[to] = *value;
    }
    let (Ok(padded), Some(op)) =
        (Tensor::from_f64(DType::F64, shape, &values), subject.with_attributes(attributes))
    else {
        return;
    };
    let assumed = Assumed {
        cause: Cause::WrongConstant,
        rank: Rank::Placed,
        note: "the padding counts as zeros".into(),
        rule: "`pads` is not 0".into(),
    };
    let mut inputs = subject.inputs.clone();
    inputs[0] = padded;
    subject.test(trials, assumed, &op, &inputs, &subject.constants);
}

/// Widths of vectors, behind the last whole of which results may not be written.
const WIDTHS: [usize; 6] = [4, 8, 16, 32, 64, 128];

/// The elements behind the last whole vector are zeros.
/// Only the number of elements matters, not their shape.
pub(in crate::hypothesis) fn tails(trials: &mut Trials<'_, '_>) {
    if ForeignSubject::from_trials(trials).is_none() {
        return;
    }
    for width in WIDTHS {
        let mut prediction = trials.context.full.exact();
        let mut rest = 0;
        for values in &mut prediction {
            let whole = values.len() / width * width;
            rest += values.len() - whole;
            values[whole..].fill(0.0);
        }
        // Zeros stand for memory that nobody wrote.
        let note = format!("the elements behind the last whole vector of {width} are not written");
        let rule = format!("the number of elements of an output is no multiple of {width}");
        if rest > 0 {
            trials.add_with_rule(Cause::TailDropped, Rank::Named, note, rule, &prediction);
        }
    }
}

/// `exp` of larger numbers is beyond f32.
/// It is the logarithm of the largest f32.
const LARGEST_EXP: f64 = 88.72;

/// NaN where the result is finite, and an input so large that its `exp` is not.
/// Wrong elements must be NaN, infinite or zero, and at least one must not be finite.
pub(in crate::hypothesis) fn overflowing(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    let beyond =
        |input: &Tensor| input.dtype().is_float() && input.to_f64().iter().any(|v| v.abs() > LARGEST_EXP);
    if !subject.inputs.iter().any(beyond) {
        return;
    }
    let view = &trials.context.full;
    // An infinite exponential may also end as zero, in a quotient.
    let lost = |out: &crate::output_view::Out| {
        out.wrong().all(|i| !out.observed[i].is_finite() || out.observed[i] == 0.0)
    };
    let infinite = view.outs.iter().any(|out| out.wrong().any(|i| !out.observed[i].is_finite()));
    // The prediction copies what was observed, so the condition on the inputs is all the evidence there is.
    if infinite && view.outs.iter().all(lost) {
        let mut prediction = view.exact();
        for (out, values) in view.outs.iter().zip(&mut prediction) {
            out.wrong().for_each(|i| values[i] = out.observed[i]);
        }
        let note = format!("`exp` of an input above {LARGEST_EXP} is infinite, and the result with it");
        let rule = format!("a value is beyond {LARGEST_EXP}");
        trials.add_with_rule(Cause::Overflow, Rank::Placed, note, rule, &prediction);
    }
}
