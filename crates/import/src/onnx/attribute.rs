//! Attributes as JSON, as operators of others hold them: see [`tapml_graph::op::Foreign`].

use super::messages::{Attribute, Node};
use super::tensor;
use serde_json::{Map, Value, json};
use std::path::Path;
use tapml_graph::{Context, DType, Error, Result};

/// Most elements of a tensor that is an attribute; larger ones are weights.
const MAX_ELEMENTS: usize = 1 << 16;

/// `AttributeProto.AttributeType`.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const STRING: i32 = 3;
const TENSOR: i32 = 4;
const FLOATS: i32 = 6;
const INTS: i32 = 7;
const STRINGS: i32 = 8;

/// The attributes of a node. Fails on those that hold graphs, types or texts that are no UTF-8.
pub fn read(node: &Node, folder: &Path) -> Result<Map<String, Value>> {
    let one = |attribute: &Attribute| {
        let value = value(attribute, folder).context(|| format!("attribute `{}`", attribute.name))?;
        Ok((attribute.name.clone(), value))
    };
    node.attribute.iter().map(one).collect()
}

fn value(attribute: &Attribute, folder: &Path) -> Result<Value> {
    Ok(match attribute.r#type {
        FLOAT if attribute.f.is_finite() => number(attribute.f),
        FLOAT => json!({"float": word(attribute.f)}),
        INT => json!(attribute.i),
        STRING => json!(text(&attribute.s)?),
        TENSOR => {
            let none = || Error::invalid("expected a tensor, found none");
            let read = tensor::read(attribute.t.as_ref().ok_or_else(none)?, folder)?;
            if read.len() > MAX_ELEMENTS {
                let text = format!("a tensor of {} elements, at most {MAX_ELEMENTS} are served", read.len());
                return Err(Error::unsupported(text));
            }
            json!({"tensor": {"dtype": read.dtype(), "shape": read.shape(), "data": elements(&read)?}})
        }
        FLOATS if attribute.floats.is_empty() => json!({"floats": []}),
        INTS if attribute.ints.is_empty() => json!({"ints": []}),
        STRINGS if attribute.strings.is_empty() => json!({"strings": []}),
        FLOATS => {
            let floats = attribute.floats.iter();
            let list: Vec<Value> =
                floats.map(|&v| if v.is_finite() { number(v) } else { json!(word(v)) }).collect();
            match attribute.floats.iter().all(|v| v.is_finite()) {
                true => Value::Array(list),
                false => json!({"floats": list}),
            }
        }
        INTS => json!(attribute.ints),
        STRINGS => {
            let texts = attribute.strings.iter().map(|s| text(s));
            json!(texts.collect::<Result<Vec<&str>>>()?)
        }
        other => return Err(Error::unsupported(format!("a value of type {other} is not served"))),
    })
}

/// The shortest digits that give this `f32` again.
fn number(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or_default())
}

fn word(value: f32) -> &'static str {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "nan",
        (false, true) => "inf",
        (false, false) => "-inf",
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::invalid("expected a text in UTF-8"))
}

fn elements(tensor: &tapml_graph::Tensor) -> Result<Value> {
    Ok(match tensor.dtype() {
        DType::Bool => json!(tensor.to_i64()?.iter().map(|&v| v != 0).collect::<Vec<bool>>()),
        dtype if dtype.is_float() => {
            let shown = |v: f64| if v.is_finite() { json!(v) } else { json!(word(v as f32)) };
            Value::Array(tensor.to_f64().into_iter().map(shown).collect())
        }
        DType::U64 => {
            let words = tensor.bytes().as_chunks::<8>().0;
            json!(words.iter().map(|&b| u64::from_le_bytes(b)).collect::<Vec<u64>>())
        }
        _ => json!(tensor.to_i64()?),
    })
}
