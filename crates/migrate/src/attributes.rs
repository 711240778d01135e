//! Attributes of operators by name, read and changed through their JSON, so that every operator has them.
//!
//! Nothing here knows an operator: what a value may be is asked of `Op::parse`, which refuses what does not
//! fit.

use serde_json::{Map, Value, json};
use tapml_graph::Op;

/// Names of every attribute that has a value, nested ones with the names that lead to them.
pub fn paths(attributes: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    walk(attributes, &mut Vec::new(), &mut found);
    found
}

/// Depth first; a map is named before what it holds. Lists are values, not places.
fn walk(value: &Value, at: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    if !at.is_empty() {
        found.push(at.clone());
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        at.push(name.clone());
        walk(inner, at, found);
        at.pop();
    }
}

/// The value under these names.
pub fn get<'v>(attributes: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(attributes, |value, name| value.get(name))
}

/// An attribute's value, for people: as JSON, cut off where it is long.
pub fn short(value: &Value) -> String {
    const MOST: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text,
    }
}

/// That an attribute has this value, or that it is absent, as a condition.
pub fn condition(name: &str, value: Option<&Value>) -> String {
    match value {
        Some(value) => format!("`{name}` is {}", short(value)),
        None => format!("`{name}` is absent"),
    }
}

/// The operator with another value for one attribute, or without it; `None` if it does not allow that.
pub fn with_attribute(op: &Op, path: &[String], value: Option<Value>) -> Option<Op> {
    let mut attributes = op.attributes();
    let (name, parents) = path.split_last()?;
    let parent: &mut Map<String, Value> =
        parents.iter().try_fold(&mut attributes, |v, name| v.get_mut(name))?.as_object_mut()?;
    match value {
        Some(value) => parent.insert(name.clone(), value),
        None => parent.remove(name),
    };
    let changed = Op::parse(op.name(), attributes).ok()?;
    // Parsing may bring a default back: the attribute is then not gone.
    (changed != *op).then_some(changed)
}

/// The value of a number that changes nothing, by the last part of its name: 1 for factors, 0 for terms.
pub fn neutral(name: &str) -> f64 {
    if ["scale", "factor"].contains(&name) { 1.0 } else { 0.0 }
}

/// The operator without each of its attributes: a number that changes nothing in its place, or nothing at all where it may
/// be absent. Names are joined by dots.
pub fn left_out(op: &Op) -> Vec<(String, Op)> {
    let attributes = op.attributes();
    let mut found: Vec<(String, Op)> = Vec::new();
    for path in paths(&attributes) {
        let name = path.last().map_or("", String::as_str);
        let number = get(&attributes, &path).is_some_and(Value::is_f64);
        let without = if number {
            with_attribute(op, &path, Some(json!(neutral(name)))).or_else(|| with_attribute(op, &path, None))
        } else {
            with_attribute(op, &path, None)
        };
        found.extend(without.map(|op| (path.join("."), op)));
    }
    found
}

/// Another value of an attribute, and how it comes from its own, as a clause that follows the attribute's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The value.
    pub value: Value,
    /// Such as `is one too small`.
    pub how: &'static str,
}

/// How an attribute is read that nobody reads.
pub const AS_ZERO: &str = "counts as 0";

/// Values near that of an attribute of an operator of others, and those that platforms take for it. `rank` is the number of axes of
/// the first input. Some of them the operator refuses.
pub fn variants(name: &str, value: &Value, rank: usize) -> Vec<Variant> {
    let variant = |(value, how)| Variant { value, how };
    let found: Vec<(Value, &'static str)> = match value {
        Value::String(word) => {
            other_words(name, word).into_iter().map(|word| (json!(word), "is another word")).collect()
        }
        Value::Bool(flag) => vec![(json!(!flag), "is taken for its opposite")],
        Value::Number(number) => match number.as_i64() {
            Some(integer) => of_integer(name, integer, rank),
            None => of_float(number.as_f64().unwrap_or(0.0)),
        },
        Value::Array(items) => match items.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>() {
            Some(items) => of_list(name, &items),
            None => Vec::new(),
        },
        _ => Vec::new(),
    };
    found.into_iter().map(variant).collect()
}

/// Each value once, without the attribute's own.
fn of_integer(name: &str, value: i64, rank: usize) -> Vec<(Value, &'static str)> {
    // An end that stands for the whole dimension is the largest integer.
    let (less, more) = (value.saturating_sub(1), value.saturating_add(1));
    let mut all = vec![(0, AS_ZERO), (less, "is one too small"), (more, "is one too large")];
    if name.contains("axis") || name == "dim" {
        all.extend((1..rank as i64).map(|axis| (axis, "is another axis")));
    }
    let mut known: Vec<i64> = vec![value];
    all.retain(|(other, _)| {
        let new = !known.contains(other);
        known.push(*other);
        new
    });
    all.into_iter().map(|(other, how)| (json!(other), how)).collect()
}

/// JSON has no infinity, so the inverse of 0 is left out.
fn of_float(value: f64) -> Vec<(Value, &'static str)> {
    let all = [
        (0.0, AS_ZERO),
        (1.0, "counts as 1"),
        (-value, "has the opposite sign"),
        (value.recip(), "is inverted"),
        (value * value, "is squared"),
    ];
    let other = |(other, _): &(f64, &str)| other.is_finite() && *other != value;
    all.into_iter().filter(other).map(|(other, how)| (json!(other), how)).collect()
}

/// Of integers; a list that is a permutation has an inverse, too.
fn of_list(name: &str, items: &[i64]) -> Vec<(Value, &'static str)> {
    let half = items.len() / 2;
    let mut all: Vec<(Vec<i64>, &'static str)> = Vec::new();
    // ONNX lists all beginnings first and then all ends.
    if items.len().is_multiple_of(2) && name == "pads" {
        all.push(([&items[half..], &items[..half]].concat(), "has its beginning and its end exchanged"));
    }
    // `None` for a list that is no permutation of 0, 1, 2, …
    let place = |i: usize| items.iter().position(|&item| usize::try_from(item) == Ok(i));
    if let Some(inverse) = (0..items.len()).map(place).collect::<Option<Vec<usize>>>() {
        all.push((inverse.into_iter().map(|i| i as i64).collect(), "is taken for its inverse"));
    }
    all.push((items.iter().map(|i| i.saturating_sub(1)).collect(), "is one too small"));
    all.push((items.iter().map(|i| i.saturating_add(1)).collect(), "is one too large"));
    all.push((items.iter().rev().copied().collect(), "is read in reverse"));
    all.push((vec![items.first().copied().unwrap_or(0); items.len()], "has only its first number"));
    all.push((vec![0; items.len()], "counts as zeros"));
    all.push((vec![1; items.len()], "counts as ones"));
    all.retain(|(other, _)| other != items);
    all.into_iter().map(|(other, how)| (json!(other), how)).collect()
}

/// The values of attributes that are words. Source: the operator schemas of ONNX 1.21 (<https://onnx.ai/onnx/operators/>).
const WORDS: &[(&str, &[&str])] = &[
    ("approximate", &["none", "tanh"]),
    ("auto_pad", &["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
    (
        "coordinate_transformation_mode",
        &[
            "half_pixel",
            "half_pixel_symmetric",
            "pytorch_half_pixel",
            "align_corners",
            "asymmetric",
            "output_half_pixel",
        ],
    ),
    ("direction", &["forward", "reverse"]),
    (
        "mode",
        &[
            "nearest", "linear", "cubic", "bilinear", "constant", "reflect", "edge", "wrap", "DCR", "CRD",
            "avg", "max",
        ],
    ),
    ("nearest_mode", &["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
    ("padding_mode", &["zeros", "border", "reflection"]),
    ("reduction", &["none", "add", "mul", "max", "min"]),
];

/// The other values of an attribute that is a word.
fn other_words(attribute: &str, value: &str) -> Vec<&'static str> {
    let known = WORDS.iter().find(|(name, _)| *name == attribute);
    known.into_iter().flat_map(|(_, words)| words.iter().copied()).filter(|word| *word != value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{Attention, RmsNorm};

    #[test]
    fn the_largest_integer_has_no_greater_one() {
        for (value, wrong) in [(json!(i64::MAX), json!(i64::MIN)), (json!([i64::MIN]), json!([i64::MAX]))] {
            let found = variants("end", &value, 1);
            assert!(!found.is_empty() && found.iter().all(|variant| variant.value != wrong), "{found:?}");
        }
    }

    #[test]
    fn attributes_are_left_out_one_by_one() {
        let norm: Op = RmsNorm::new(1e-5).into();
        assert_eq!(left_out(&norm), [("eps".to_string(), RmsNorm::new(0.0).into())]);
        let capped =
            json!({"heads": 4, "kv_heads": 2, "head_dim": 8, "scale": 0.25, "window": 5, "softcap": 50.0});
        let attention = Op::parse("attention", capped).unwrap();
        let without = left_out(&attention);
        let names: Vec<&str> = without.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["scale", "window", "softcap"], "what must be there cannot be left out");
        let Op::Attention(Attention { window, softcap, .. }) = &without[1].1 else { panic!() };
        assert_eq!((*window, softcap.is_some()), (None, true));
    }
}
