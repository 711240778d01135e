//! Attributes of operators by name, read and changed through their JSON, so that every operator has them.

use serde_json::{Map, Value, json};
use tapml_graph::Op;

/// Names of every attribute that has a value, nested ones with the names that lead to them.
pub fn paths(attributes: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    walk(attributes, &mut Vec::new(), &mut found);
    found
}

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
pub fn with(op: &Op, path: &[String], value: Option<Value>) -> Option<Op> {
    let mut attributes = op.attributes();
    let (name, parents) = path.split_last()?;
    let parent: &mut Map<String, Value> =
        parents.iter().try_fold(&mut attributes, |v, name| v.get_mut(name))?.as_object_mut()?;
    match value {
        Some(value) => parent.insert(name.clone(), value),
        None => parent.remove(name),
    };
    let changed = Op::parse(op.name(), attributes).ok()?;
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
        let without = match number {
            true => with(op, &path, Some(json!(neutral(name)))).or_else(|| with(op, &path, None)),
            false => with(op, &path, None),
        };
        found.extend(without.map(|op| (path.join("."), op)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{Attention, RmsNorm};

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
