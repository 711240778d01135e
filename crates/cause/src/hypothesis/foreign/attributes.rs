//! Attributes of an operator of others that a platform ignores, or reads as something else.

use super::{Assumed, Subject, known};
use crate::Cause;
use crate::trials::{Rank, Trials};
use serde_json::{Map, Value, json};
use tapml_migrate::attributes::{condition, short};

/// How an attribute is read that nobody reads.
const ZERO: &str = "counts as 0";

/// Every attribute left out, alone and with another one that means nothing without it, and with other values.
pub(in crate::hypothesis) fn changed(trials: &mut Trials<'_, '_>) {
    let Some(subject) = Subject::of(trials) else { return };
    let own = subject.op.attributes().clone();
    for name in own.keys() {
        let fits = left_out(trials, &subject, name, None);
        let others = || own.keys().filter(|other| *other != name);
        if !fits {
            others().any(|other| left_out(trials, &subject, name, Some(other)));
        }
    }
    for (name, value) in &own {
        for (other, how) in others(&subject, name, value) {
            let assumed = Assumed {
                cause: Cause::WrongAttribute,
                // What a platform assumes that never looks at the attribute.
                rank: if how == ZERO { Rank::Named } else { Rank::Placed },
                note: format!("`{name}` {how}: {} in the place of {}", short(&other), short(value)),
                rule: condition(name, Some(value)),
            };
            let mut attributes = own.clone();
            attributes.insert(name.clone(), other);
            subject.test_attributes(trials, assumed, attributes);
        }
    }
}

/// Whether an attribute left out, and another one with it, is what was computed.
fn left_out(trials: &mut Trials<'_, '_>, subject: &Subject, name: &str, with: Option<&String>) -> bool {
    let mut attributes = subject.op.attributes().clone();
    let value = attributes.remove(name).unwrap_or_default();
    let beside = with.map(|with| format!(", and `{with}` with it")).unwrap_or_default();
    with.map(|with| attributes.remove(with));
    let assumed = Assumed {
        cause: Cause::WrongAttribute,
        rank: if with.is_some() { Rank::Placed } else { Rank::Named },
        note: format!("`{name}` is ignored{beside}: it is {}", short(&value)),
        rule: condition(name, Some(&value)),
    };
    subject.test_attributes(trials, assumed, attributes).fits()
}

/// Attributes that are absent, taken for something else than what the standard says of them then.
pub(in crate::hypothesis) fn assumed(trials: &mut Trials<'_, '_>) {
    let Some(subject) = Subject::of(trials) else { return };
    let own: &Map<String, Value> = subject.op.attributes();
    let flags =
        known::FLAGS.iter().filter(|(op, name, _)| *op == subject.op.name() && !own.contains_key(*name));
    for (_, name, default) in flags {
        let assumed = Assumed {
            cause: Cause::WrongAttribute,
            rank: Rank::Named,
            note: format!("`{name}` is absent, and taken for {} instead of {default}", 1 - default),
            rule: condition(name, None),
        };
        let mut attributes = own.clone();
        attributes.insert((*name).into(), json!(1 - default));
        subject.test_attributes(trials, assumed, attributes);
    }
}

/// Other values of an attribute, and how they come from its own.
fn others(subject: &Subject, name: &str, value: &Value) -> Vec<(Value, &'static str)> {
    match value {
        Value::String(word) => {
            known::other_words(name, word).into_iter().map(|word| (json!(word), "is another word")).collect()
        }
        Value::Number(number) => match number.as_i64() {
            Some(integer) => of_integer(subject, name, integer),
            None => of_float(number.as_f64().unwrap_or(0.0)),
        },
        Value::Array(items) => match items.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>() {
            Some(items) => of_list(name, &items),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn of_integer(subject: &Subject, name: &str, value: i64) -> Vec<(Value, &'static str)> {
    let mut all = vec![(0, ZERO), (value - 1, "is one too small"), (value + 1, "is one too large")];
    if name.contains("axis") {
        let rank = subject.inputs.first().map_or(0, |input| input.shape().len()) as i64;
        all.extend((1..rank).map(|axis| (axis, "is another axis")));
    }
    let mut known: Vec<i64> = vec![value];
    all.retain(|(other, _)| {
        let new = !known.contains(other);
        known.push(*other);
        new
    });
    all.into_iter().map(|(other, how)| (json!(other), how)).collect()
}

fn of_float(value: f64) -> Vec<(Value, &'static str)> {
    let all = [
        (0.0, ZERO),
        (1.0, "counts as 1"),
        (-value, "has the opposite sign"),
        (value.recip(), "is inverted"),
        (value * value, "is squared"),
    ];
    let other = |(other, _): &(f64, &str)| other.is_finite() && *other != value;
    all.into_iter().filter(other).map(|(other, how)| (json!(other), how)).collect()
}

fn of_list(name: &str, items: &[i64]) -> Vec<(Value, &'static str)> {
    let half = items.len() / 2;
    let mut all: Vec<(Vec<i64>, &'static str)> = Vec::new();
    if items.len().is_multiple_of(2) && name == "pads" {
        all.push(([&items[half..], &items[..half]].concat(), "has its beginning and its end exchanged"));
    }
    let place = |i: usize| items.iter().position(|&item| usize::try_from(item) == Ok(i));
    if let Some(inverse) = (0..items.len()).map(place).collect::<Option<Vec<usize>>>() {
        all.push((inverse.into_iter().map(|i| i as i64).collect(), "is taken for its inverse"));
    }
    all.push((items.iter().map(|i| i - 1).collect(), "is one too small"));
    all.push((items.iter().map(|i| i + 1).collect(), "is one too large"));
    all.push((items.iter().rev().copied().collect(), "is read in reverse"));
    all.push((vec![items.first().copied().unwrap_or(0); items.len()], "has only its first number"));
    all.push((vec![0; items.len()], "counts as zeros"));
    all.push((vec![1; items.len()], "counts as ones"));
    all.retain(|(other, _)| other != items);
    all.into_iter().map(|(other, how)| (json!(other), how)).collect()
}
