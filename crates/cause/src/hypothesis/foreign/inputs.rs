//! Inputs of an operator of others that a platform ignores, exchanges, or reads as something else.
//!
//! Places are those of the operator's signature; indices count only the inputs that are given.

use super::subject::{Assumed, ForeignSubject, like, undeclared_outputs};
use crate::Cause;
use crate::trials::{Rank, Trials};
use tapml_graph::op::Foreign;
use tapml_graph::{Result, Tensor};

/// Every input left out that the operator can do without, and every two of one type exchanged.
/// The operator decides what it can do without: a call that it refuses is not tested.
pub(in crate::hypothesis) fn left_out(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    for (place, _) in subject.op.inputs().iter().enumerate().filter(|(_, there)| **there) {
        let Some(index) = subject.index(place) else { continue };
        let name = subject.name(index);
        let assumed = Assumed {
            cause: Cause::InputIgnored,
            rank: Rank::Named,
            note: format!("{name} is ignored"),
            rule: format!("{name} is given"),
        };
        let mut places = subject.op.inputs().to_vec();
        places[place] = false;
        // A list of places ends with one that is given.
        places.truncate(places.iter().rposition(|there| *there).map_or(0, |last| last + 1));
        let (mut inputs, mut constants) = (subject.inputs.clone(), subject.constants.clone());
        inputs.remove(index);
        constants.remove(index);
        let (attributes, outputs) = (subject.op.attributes().clone(), undeclared_outputs(&subject.op));
        let Ok(op) = Foreign::new(subject.op.kind(), attributes, places, outputs) else { continue };
        subject.test(trials, assumed, &op, &inputs, &constants);
    }
    try_exchanged(trials, &subject);
}

/// Every two inputs exchanged. The operator refuses those of types that do not fit.
fn try_exchanged(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    for second in 1..subject.inputs.len() {
        for first in 0..second {
            let mut inputs = subject.inputs.clone();
            inputs.swap(first, second);
            let (one, other) = (subject.name(first), subject.name(second));
            let assumed = Assumed {
                cause: Cause::SwappedOperands,
                rank: Rank::Named,
                note: format!("{one} and {other} are taken for each other"),
                rule: format!("{one} and {other} differ"),
            };
            subject.test_inputs(trials, assumed, inputs);
        }
    }
}

/// Longer inputs of integers are data, not parameters such as paddings and axes.
const PARAMETERS: usize = 64;

/// Inputs that are parameters or indices, read as something else.
/// All inputs of integers together first, then each alone.
pub(in crate::hypothesis) fn misread(trials: &mut Trials<'_, '_>) {
    let Some(subject) = ForeignSubject::from_trials(trials) else { return };
    try_wrapped(trials, &subject);
    for index in 0..subject.inputs.len() {
        let input = &subject.inputs[index];
        // Floats are read otherwise by `values`.
        let Ok(own) = input.to_i64() else { continue };
        let name = subject.name(index);
        for reading in readings(&own) {
            let assumed = Assumed {
                cause: reading.cause,
                rank: Rank::Placed,
                note: format!("{name} {}", reading.how),
                rule: format!("{name} has {}", reading.when),
            };
            let values = Tensor::from_i64(input.dtype(), input.shape().to_vec(), &reading.values);
            if let Ok(values) = values {
                subject.test_input(trials, assumed, index, values);
            }
        }
    }
    scaled_away(trials, &subject);
}

/// Every input of integers through 32 bits.
/// Runtimes that have no 64-bit integers read all of them so.
fn try_wrapped(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    let through = |input: &Tensor| match input.to_i64() {
        Ok(values) => {
            let values: Vec<i64> = values.into_iter().map(|v| i64::from(v as i32)).collect();
            Tensor::from_i64(input.dtype(), input.shape().to_vec(), &values)
        }
        Err(_) => Ok(input.clone()),
    };
    let Ok(inputs) = subject.inputs.iter().map(through).collect::<Result<Vec<Tensor>>>() else { return };
    // Values that fit 32 bits stay, and then there is nothing to test.
    let own = |(a, b): (&Tensor, &Tensor)| a.bytes()[..] == b.bytes()[..];
    if !subject.inputs.iter().zip(&inputs).all(own) {
        let assumed = Assumed {
            cause: Cause::WrongCast,
            rank: Rank::Named,
            note: "every input of integers passes through i32".into(),
            rule: "an integer has more than 32 bits".into(),
        };
        subject.test_inputs(trials, assumed, inputs);
    }
}

/// Integers as they may be read.
///
/// `how` continues the input's name, `when` says which values show it.
/// `values` are all elements of the input in their new reading.
struct Reading {
    values: Vec<i64>,
    cause: Cause,
    how: &'static str,
    when: &'static str,
}

/// Readings that leave the values as they are say nothing and are left out.
/// Long inputs get only the readings that make sense for data: through 32 bits, and negative numbers as 0.
fn readings(own: &[i64]) -> Vec<Reading> {
    let each = |change: &dyn Fn(i64) -> i64| own.iter().map(|&v| change(v)).collect::<Vec<i64>>();
    let reading = |values, cause, how, when| Reading { values, cause, how, when };
    let (wrapped, clamped) = (each(&|v| i64::from(v as i32)), each(&|v| v.max(0)));
    let mut all = vec![
        reading(wrapped, Cause::WrongCast, "passes through i32", "integers of more than 32 bits"),
        reading(clamped, Cause::InputIgnored, "has its negative numbers taken for 0", "negative numbers"),
    ];
    if own.len() <= PARAMETERS {
        // Paddings list all beginnings, then all ends.
        let half = own.len() / 2;
        let negative = |by: i64| each(&|v| if v < 0 { v + by } else { v });
        all.push(reading(
            negative(-1),
            Cause::OffByOne,
            "has negative numbers one too small",
            "negative numbers",
        ));
        all.push(reading(
            negative(1),
            Cause::OffByOne,
            "has negative numbers one too large",
            "negative numbers",
        ));
        all.push(reading(each(&|v| v - 1), Cause::OffByOne, "is one too small", "any values"));
        all.push(reading(each(&|v| v + 1), Cause::OffByOne, "is one too large", "any values"));
        all.push(reading(
            each(&|v| v.min(1)),
            Cause::InputIgnored,
            "has numbers above 1 taken for 1",
            "numbers above 1",
        ));
        all.push(reading(vec![0; own.len()], Cause::InputIgnored, "counts as zeros", "any values but zeros"));
        if own.len().is_multiple_of(2) {
            let exchanged = [&own[half..], &own[..half]].concat();
            all.push(reading(
                exchanged,
                Cause::SwappedOperands,
                "has its two halves exchanged",
                "two halves that differ",
            ));
        }
        let reversed = own.iter().rev().copied().collect();
        all.push(reading(reversed, Cause::SwappedOperands, "is read in reverse", "several numbers"));
    }
    all.retain(|reading| reading.values != own);
    all
}

/// Inputs of floats taken for zeros and for ones.
/// Zeros take away a term, ones take away a factor.
/// The first input is left out, since nothing would be left of the call.
fn scaled_away(trials: &mut Trials<'_, '_>, subject: &ForeignSubject) {
    // Without its first input, the data, an operator gives nothing.
    for index in 1..subject.inputs.len() {
        let input = &subject.inputs[index];
        if !input.dtype().is_float() {
            continue;
        }
        let name = subject.name(index);
        for value in [0.0, 1.0] {
            let assumed = Assumed {
                cause: Cause::InputIgnored,
                rank: Rank::Placed,
                note: format!("{name} is ignored: it counts as {value}"),
                rule: format!("{name} is not {value}"),
            };
            if let Some(constant) = like(input, &vec![value; input.len()]) {
                subject.test_input(trials, assumed, index, constant);
            }
        }
    }
}
