//! Attributes of the operator left out, or with other values. Works on the attributes' JSON, so every operator has it.
//!
//! A change that the operator refuses is skipped, so that values may be tried without knowing what an attribute means.

use crate::Cause;
use crate::trials::{Rank, Trials};
use crate::words::number;
use serde_json::{Value, json};
use tapml_graph::Op;
use tapml_graph::op::OPS;
use tapml_migrate::attributes::neutral;
pub(super) use tapml_migrate::attributes::{get, paths, with_attribute};

/// What it means if an attribute is left out (or has the value that changes nothing), and if it has another value; by
/// the last part of its name. Attributes that are not listed are terms and constants.
/// Names are those of fields of operators in `tapml_graph::op`.
const MEANINGS: &[(&str, Cause, Cause)] = &[
    ("scale", Cause::MissingScale, Cause::WrongScale),
    ("factor", Cause::MissingScale, Cause::WrongScale),
    ("normalize", Cause::MissingScale, Cause::MissingScale),
    ("window", Cause::WindowIgnored, Cause::MaskShifted),
    ("chunk", Cause::WindowIgnored, Cause::MaskShifted),
    ("causal", Cause::MaskIgnored, Cause::MaskIgnored),
    ("heads", Cause::WrongHead, Cause::WrongHead),
    ("kv_heads", Cause::WrongHead, Cause::WrongHead),
    ("groups", Cause::WrongHead, Cause::WrongHead),
    ("head_dim", Cause::WrongStride, Cause::WrongStride),
    ("value_dim", Cause::WrongStride, Cause::WrongStride),
    ("rotary_dim", Cause::WrongStride, Cause::WrongStride),
    ("group", Cause::WrongStride, Cause::WrongStride),
    ("interleaved", Cause::WrongStride, Cause::WrongStride),
    ("shared", Cause::WrongStride, Cause::WrongStride),
    ("first", Cause::OffByOne, Cause::OffByOne),
    ("offset", Cause::MissingTerm, Cause::WrongConstant),
    ("approximate", Cause::WrongFormula, Cause::WrongFormula),
    ("scores", Cause::WrongFormula, Cause::WrongFormula),
    ("by", Cause::WrongFormula, Cause::WrongFormula),
];

/// The causes of an attribute left out and of one changed.
pub(super) fn meaning(op: &Op, path: &[String]) -> (Cause, Cause) {
    let name = path.last().map_or("", String::as_str);
    if matches!(op, Op::Positions(_)) {
        return (Cause::PositionShifted, Cause::PositionShifted);
    }
    let found = MEANINGS.iter().find(|(n, ..)| *n == name);
    found.map_or((Cause::MissingTerm, Cause::WrongConstant), |(_, missing, wrong)| (*missing, *wrong))
}

/// Every attribute left out, and with the values that defects give it.
/// A change is tried on the cut, which makes an evaluation cheap.
pub(super) fn try_changed(trials: &mut Trials<'_, '_>) {
    let op = trials.context.cut.op.clone();
    let attributes = op.attributes();
    for path in paths(&attributes) {
        // Other types are tried by `precision` and by casts of inputs.
        if path.last().is_some_and(|n| n == "dtype") {
            continue;
        }
        let Some(value) = get(&attributes, &path) else { continue };
        let name = path.join(".");
        let (missing, wrong) = meaning(&op, &path);
        test(trials, missing, format!("`{name}` is left out"), with_attribute(&op, &path, None));
        for (other, change) in other_values(&op, &path, value) {
            let (cause, note) = match change {
                AttributeChange::LeftOut => {
                    (missing, format!("`{name}` is left out (as if {})", short(&other)))
                }
                AttributeChange::Negated => (Cause::WrongSign, format!("`{name}` has the opposite sign")),
                AttributeChange::Moved(cause, how) => (cause, format!("the values of `{name}` are {how}")),
                AttributeChange::Another => {
                    let (other, own) = (short(&other), short(value));
                    (wrong, format!("`{name}` is {other}, where the operator says {own}"))
                }
            };
            test(trials, cause, note, with_attribute(&op, &path, Some(other)));
        }
    }
}

/// Tests the call with a changed operator; `None` is one that is not valid.
fn test(trials: &mut Trials<'_, '_>, cause: Cause, note: String, op: Option<Op>) {
    let Some(op) = op else { return };
    let inputs = trials.context.cut.inputs.clone();
    let prediction = trials.eval(&op, &inputs);
    trials.cut(cause, Rank::Named, note, prediction);
}

/// What another value of an attribute stands for.
enum AttributeChange {
    /// The attribute left out.
    LeftOut,
    /// The opposite sign.
    Negated,
    /// The same values at other places.
    Moved(Cause, &'static str),
    /// Just another value.
    Another,
}

/// Other values of an attribute, and what they stand for.
/// Whole numbers get their neighbours, floats get their multiples, words and booleans get the other ones, lists get other orders.
fn other_values(op: &Op, path: &[String], value: &Value) -> Vec<(Value, AttributeChange)> {
    let name = path.last().map_or("", String::as_str);
    match value {
        Value::Bool(b) => vec![(json!(!b), AttributeChange::Another)],
        Value::Number(n) if n.is_u64() => {
            let v = n.as_u64().unwrap_or(0);
            // Neighbours, doubles and halves: what off-by-one errors and mistaken units give.
            let near =
                [v.checked_sub(1), Some(v + 1), Some(2 * v), Some(v / 2), v.checked_sub(2), Some(v + 2)];
            let mut values: Vec<u64> = near.into_iter().flatten().filter(|&o| o != v).collect();
            values.dedup();
            values.into_iter().map(|o| (json!(o), AttributeChange::Another)).collect()
        }
        Value::Number(n) => {
            let v = n.as_f64().unwrap_or(0.0);
            let neutral = neutral(name);
            let other =
                [1.0 - neutral, 2.0 * v, v / 2.0, v * v, v.recip(), v.abs().sqrt(), 10.0 * v, v / 10.0];
            // The square, the root and the inverse are what is left if a step of the formula is forgotten or done twice.
            let other = other.into_iter().filter(|o| o.is_finite() && *o != neutral);
            let special = [(neutral, AttributeChange::LeftOut), (-v, AttributeChange::Negated)];
            let all = special.into_iter().chain(other.map(|o| (o, AttributeChange::Another)));
            all.filter(|(o, _)| *o != v).map(|(o, change)| (json!(o), change)).collect()
        }
        Value::String(_) => {
            let others = alternatives(op.name(), path).into_iter().filter(|o| o != value);
            others.map(|o| (o, AttributeChange::Another)).collect()
        }
        Value::Array(items) if items.iter().all(Value::is_number) => {
            of_list(&items.iter().filter_map(Value::as_f64).collect::<Vec<f64>>())
        }
        _ => Vec::new(),
    }
}

/// Other lists of numbers in the place of one.
/// The index maps are those of wrong loads: one element for all, reversed, neighbours, shifted, strided.
fn of_list(numbers: &[f64]) -> Vec<(Value, AttributeChange)> {
    let gathered = |from: &dyn Fn(usize) -> usize| {
        json!((0..numbers.len()).map(|i| numbers[from(i).min(numbers.len() - 1)]).collect::<Vec<f64>>())
    };
    let scaled = |by: f64| json!(numbers.iter().map(|v| by * v).collect::<Vec<f64>>());
    let last = numbers.len().saturating_sub(1);
    vec![
        (scaled(-1.0), AttributeChange::Negated),
        (scaled(2.0), AttributeChange::Another),
        (scaled(0.5), AttributeChange::Another),
        (gathered(&|_| 0), AttributeChange::Moved(Cause::WrongStride, "all the first one")),
        (gathered(&|i| last - i), AttributeChange::Moved(Cause::WrongStride, "read in reverse")),
        (
            gathered(&|i| i ^ 1),
            AttributeChange::Moved(Cause::ColumnsSwapped, "exchanged with their neighbours"),
        ),
        (gathered(&|i| i + 1), AttributeChange::Moved(Cause::OffByOne, "those behind them")),
        (gathered(&|i| i.saturating_sub(1)), AttributeChange::Moved(Cause::OffByOne, "those before them")),
        (gathered(&|i| 2 * i), AttributeChange::Moved(Cause::WrongStride, "read two apart")),
        (gathered(&|i| i / 2), AttributeChange::Moved(Cause::WrongStride, "read half as far apart")),
    ]
}

/// Every value that the samples of the operator give this attribute.
/// Words have no neighbours, but samples of the operator list those that it knows.
fn alternatives(name: &str, path: &[String]) -> Vec<Value> {
    let Some(info) = OPS.iter().find(|info| info.name == name) else { return Vec::new() };
    let mut values: Vec<Value> = Vec::new();
    for sample in (info.samples)() {
        if let Some(value) = get(&sample.op.attributes(), path)
            && !values.contains(value)
        {
            values.push(value.clone());
        }
    }
    values
}

/// A value in few characters.
fn short(value: &Value) -> String {
    match value {
        Value::Number(n) => n.as_f64().map_or_else(|| n.to_string(), number),
        Value::Array(items) => {
            let shown: Vec<String> = items.iter().take(3).map(short).collect();
            format!("[{}, …]", shown.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{Gelu, RmsNorm};

    #[test]
    fn attributes_of_every_sample_can_be_set_to_themselves_and_changed() {
        let mut changes = 0;
        for info in OPS {
            for sample in (info.samples)() {
                let attributes = sample.op.attributes();
                for path in paths(&attributes) {
                    let value = get(&attributes, &path).unwrap().clone();
                    assert_eq!(with_attribute(&sample.op, &path, Some(value.clone())), None, "{path:?}");
                    changes += other_values(&sample.op, &path, &value)
                        .into_iter()
                        .filter(|(o, _)| with_attribute(&sample.op, &path, Some(o.clone())).is_some())
                        .count();
                }
            }
        }
        assert!(changes > 200, "{changes}");
    }

    #[test]
    fn formulas_are_known_from_the_samples() {
        let gelu: Op = Gelu::default().into();
        let forms = alternatives(gelu.name(), &["approximate".to_string()]);
        assert_eq!(forms, [json!("none"), json!("tanh"), json!("quick")]);
        let norm: Op = RmsNorm::new(1e-5).into();
        let none = with_attribute(&norm, &["eps".to_string()], Some(json!(0.0))).unwrap();
        assert_eq!(none, RmsNorm::new(0.0).into());
    }
}
