//! Attributes as JSON, as operators of others hold them: see [`tapml_graph::op::Foreign`].
//!
//! A finite float is a JSON number with a point, a whole number one without. What JSON cannot say stands in
//! an object of one key: `{"float": "nan"}`, `{"tensor": …}`, and empty lists, whose type would be lost.
//! [`write`] undoes [`read`].

use super::messages::{Attribute, Graph, Node};
use super::tensor;
use serde_json::{Map, Value, json};
use std::path::Path;
use tapml_graph::{Context, DType, Error, Result};

/// Most elements of a tensor that is an attribute; larger ones are weights.
const MAX_ELEMENTS: usize = 1 << 16;

// Types 9 to 14 (sparse tensors, types, lists of tensors and graphs) are not served.
/// `AttributeProto.AttributeType`.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const STRING: i32 = 3;
const TENSOR: i32 = 4;
const FLOATS: i32 = 6;
const INTS: i32 = 7;
const STRINGS: i32 = 8;
pub const GRAPH: i32 = 5;

/// The attributes of a node. Fails on those that hold graphs, types or texts that are no UTF-8.
///
/// Tensors may lie in files of `folder`.
pub fn read(node: &Node, folder: &Path) -> Result<Map<String, Value>> {
    match graphs(node).next() {
        Some((name, _)) => {
            Err(Error::unsupported(format!("attribute `{name}`: a graph, which is not served here")))
        }
        None => read_plain(node, folder),
    }
}

/// The graphs among the attributes of a node, by name.
pub fn graphs(node: &Node) -> impl Iterator<Item = (&str, &Graph)> {
    node.attribute.iter().filter_map(|attribute| Some((attribute.name.as_str(), attribute.g.as_ref()?)))
}

/// The attributes of a node but its graphs.
pub fn read_plain(node: &Node, folder: &Path) -> Result<Map<String, Value>> {
    let one = |attribute: &Attribute| {
        let value = value(attribute, folder).context(|| format!("attribute `{}`", attribute.name))?;
        Ok((attribute.name.clone(), value))
    };
    node.attribute.iter().filter(|attribute| attribute.g.is_none()).map(one).collect()
}

/// The JSON of one attribute. An attribute whose `type` is left out is refused: its kind cannot be told.
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
        // An empty JSON list would not say of what.
        FLOATS if attribute.floats.is_empty() => json!({"floats": []}),
        INTS if attribute.ints.is_empty() => json!({"ints": []}),
        STRINGS if attribute.strings.is_empty() => json!({"strings": []}),
        FLOATS => {
            let floats = attribute.floats.iter();
            let list: Vec<Value> =
                floats.map(|&v| if v.is_finite() { number(v) } else { json!(word(v)) }).collect();
            if attribute.floats.iter().all(|v| v.is_finite()) {
                Value::Array(list)
            } else {
                json!({"floats": list})
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

/// The attribute of a value as [`read_plain`] gives it: any but a graph.
///
/// # Errors
/// If the value is none of these.
pub fn write(name: &str, value: &Value) -> Result<Attribute> {
    // Whole numbers are tried first: a float with a whole value keeps its point in JSON.
    let mut made = Attribute { name: name.into(), ..Attribute::default() };
    let bytes = |text: &str| prost::bytes::Bytes::copy_from_slice(text.as_bytes());
    let texts = |list: &[Value]| list.iter().map(|v| v.as_str().map(bytes)).collect::<Option<Vec<_>>>();
    let ints = |list: &[Value]| list.iter().map(Value::as_i64).collect::<Option<Vec<_>>>();
    let floats = |list: &[Value]| list.iter().map(float).collect::<Option<Vec<_>>>();
    let named = |kind: &str| value.get(kind);
    let mut fill = || -> Option<i32> {
        if let Some(number) = value.as_i64() {
            made.i = number;
            return Some(INT);
        }
        if let Some(number) = float(named("float").unwrap_or(value)).filter(|_| !value.is_string()) {
            made.f = number;
            return Some(FLOAT);
        }
        if let Some(text) = value.as_str() {
            made.s = bytes(text);
            return Some(STRING);
        }
        if let Some(list) = value.as_array().or_else(|| named("ints")?.as_array())
            && let Some(list) = ints(list)
        {
            made.ints = list;
            return Some(INTS);
        }
        if let Some(list) = value.as_array().or_else(|| named("floats")?.as_array())
            && let Some(list) = floats(list).filter(|list| !list.is_empty() || named("floats").is_some())
        {
            made.floats = list;
            return Some(FLOATS);
        }
        let list = value.as_array().or_else(|| named("strings")?.as_array())?;
        made.strings = texts(list)?;
        Some(STRINGS)
    };
    let kind = match value.get("tensor") {
        Some(tensor) => {
            let tensor = parse_tensor(tensor).ok_or_else(|| Error::invalid("expected a tensor"))?;
            made.t = Some(tensor::write(&tensor)?);
            TENSOR
        }
        None => fill().ok_or_else(|| {
            let found = value.to_string().chars().take(80).collect::<String>();
            Error::unsupported(format!("`{found}` is no value of an ONNX attribute"))
        })?,
    };
    Ok(Attribute { r#type: kind, ..made })
}

/// Also the words for what is not finite.
fn float(value: &Value) -> Option<f32> {
    match value {
        Value::String(text) if matches!(text.as_str(), "inf" | "-inf" | "nan") => text.parse().ok(),
        Value::Number(number) => number.as_f64().map(|number| number as f32),
        _ => None,
    }
}

/// A tensor of its JSON; `None` if that is none.
fn parse_tensor(value: &Value) -> Option<tapml_graph::Tensor> {
    let dtype = DType::parse(value.get("dtype")?.as_str()?).filter(|dtype| dtype.packing().is_none())?;
    let size = |size: &Value| usize::try_from(size.as_u64()?).ok();
    let shape = value.get("shape")?.as_array()?.iter().map(size).collect::<Option<Vec<usize>>>()?;
    let data = value.get("data")?.as_array()?;
    let number = |v: &Value| match v {
        Value::String(text) => text.parse::<f64>().ok(),
        v => v.as_f64(),
    };
    match dtype {
        dtype if dtype.is_float() => {
            let values = data.iter().map(number).collect::<Option<Vec<f64>>>()?;
            tapml_graph::Tensor::from_f64(dtype, shape, &values).ok()
        }
        // `from_i64` does not reach the upper half of the range.
        DType::U64 => {
            let words = data.iter().map(|v| v.as_u64().map(u64::to_le_bytes)).collect::<Option<Vec<_>>>()?;
            tapml_graph::Tensor::new(dtype, shape, tapml_graph::Bytes::new(words.concat())).ok()
        }
        dtype => {
            let values = data.iter().map(|v| v.as_i64().or(v.as_bool().map(i64::from)));
            tapml_graph::Tensor::from_i64(dtype, shape, &values.collect::<Option<Vec<i64>>>()?).ok()
        }
    }
}

/// The shortest digits that give this `f32` again.
///
/// By way of text: widening an f32 to f64 would show digits that it does not have.
fn number(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or_default())
}

/// JSON has no number for these.
fn word(value: f32) -> &'static str {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "nan",
        (false, true) => "inf",
        (false, false) => "-inf",
    }
}

/// ONNX does not prescribe UTF-8 for attributes; JSON does.
fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::invalid("expected a text in UTF-8"))
}

/// The elements of a tensor as a flat list, row-major.
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
