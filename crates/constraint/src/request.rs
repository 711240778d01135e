//! The form that a request asks for. OpenAI, vLLM, SGLang and llama-server each have names of their own for it.

use crate::grammar::Grammar;
use serde_json::{Map, Value, json};
use tapml_graph::Error;

/// Names of the fields that give a form.
pub const FORM_FIELDS: &[&str] = &[
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "json_schema",
    "grammar",
    "regex",
    "ebnf",
];

/// Most texts of a choice.
const MAX_TEXTS: usize = 4096;

/// A form, and the field that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedForm {
    /// One of [`FORM_FIELDS`].
    pub field: &'static str,
    /// What is asked for.
    pub grammar: Grammar,
}

/// A field that asks for no form that can be.
#[derive(Clone, Debug)]
pub struct FormFault {
    /// Where it stands, such as `response_format.type`.
    pub place: String,
    /// What sort of mistake it is.
    pub kind: FormFaultKind,
    /// What is wrong.
    pub error: Error,
}

/// Sorts of mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormFaultKind {
    /// The value has another type.
    Type,
    /// The value does not fit the others.
    Value,
    /// Something must be there.
    Missing,
    /// It is not known here.
    Unsupported,
    /// The grammar is damaged.
    Grammar,
}

type FormResult<T> = Result<T, FormFault>;

fn fault(kind: FormFaultKind, place: &str, text: String) -> FormFault {
    FormFault { place: place.into(), kind, error: Error::invalid(text) }
}

/// The form, if one is wanted. `field` gives the value of a field; none and null ask for nothing.
///
/// # Errors
/// If fields are wrong or contradict one another.
pub fn read_form<E: From<FormFault>>(
    mut field: impl FnMut(&'static str) -> Result<Option<Value>, E>,
) -> Result<Option<RequestedForm>, E> {
    let mut found: Option<RequestedForm> = None;
    for name in FORM_FIELDS {
        let Some(value) = field(name)?.filter(|value| !value.is_null()) else { continue };
        let Some(grammar) = read_field(name, value)? else { continue };
        if let Some(RequestedForm { field: first, .. }) = found {
            let text = format!("`{first}` and `{name}` both give a form; give one of them");
            return Err(fault(FormFaultKind::Value, name, text).into());
        }
        found = Some(RequestedForm { field: name, grammar });
    }
    Ok(found)
}

fn read_field(name: &str, value: Value) -> FormResult<Option<Grammar>> {
    match (name, value) {
        ("response_format", Value::Object(format)) => read_format(&format),
        ("structured_outputs", Value::Object(options)) => read_options(&options),
        ("response_format" | "structured_outputs", _) => {
            Err(fault(FormFaultKind::Type, name, format!("`{name}` must be an object")))
        }
        (_, value) => read_value(name, name, value),
    }
}

/// OpenAI's `response_format`; TGI's `regex` and llama-server's schema in place are taken too.
fn read_format(format: &Map<String, Value>) -> FormResult<Option<Grammar>> {
    let Some(kind) = format.get("type").and_then(Value::as_str) else {
        let text = "`response_format.type` must be a text, such as `text`".into();
        return Err(fault(FormFaultKind::Type, "response_format.type", text));
    };
    let inner = format.get("json_schema").filter(|inner| inner.get("schema").is_some());
    let schema = match inner {
        Some(inner) => inner.get("schema"),
        None => format.get("schema").or(format.get("json_schema")).or(format.get("value")),
    };
    let place = "response_format.json_schema.schema";
    match (kind, schema) {
        ("text", _) => Ok(None),
        ("json_object", None) => Ok(Some(Grammar::Json(json!({ "type": "object" })))),
        ("json_schema" | "json_object" | "json", Some(schema)) => {
            read_value("guided_json", place, schema.clone())
        }
        ("json_schema" | "json", None) => {
            let text = format!("`{place}` is missing: the schema that the answer must fulfil");
            Err(fault(FormFaultKind::Missing, place, text))
        }
        ("regex", Some(regex)) => read_value("guided_regex", "response_format.value", regex.clone()),
        _ => {
            let text = format!(
                "`response_format.type` is `{kind}`; expected `text`, `json_object` or `json_schema`"
            );
            Err(fault(FormFaultKind::Unsupported, "response_format.type", text))
        }
    }
}

/// vLLM's `structured_outputs`: one of its fields.
fn read_options(options: &Map<String, Value>) -> FormResult<Option<Grammar>> {
    let given = options.iter().filter(|(_, value)| !matches!(value, Value::Null | Value::Bool(false)));
    let mut found = None;
    for (name, value) in given {
        let place = format!("structured_outputs.{name}");
        let grammar = match name.as_str() {
            "json" => read_value("guided_json", &place, value.clone())?,
            "regex" => read_value("guided_regex", &place, value.clone())?,
            "choice" => read_value("guided_choice", &place, value.clone())?,
            "grammar" => read_value("guided_grammar", &place, value.clone())?,
            "json_object" => Some(Grammar::Json(json!({ "type": "object" }))),
            _ => {
                let text =
                    format!("`{place}` is not supported; use json, json_object, regex, choice or grammar");
                return Err(fault(FormFaultKind::Unsupported, &place, text));
            }
        };
        if grammar.is_some() && found.is_some() {
            let text = "`structured_outputs` gives several forms; give one of them".into();
            return Err(fault(FormFaultKind::Value, &place, text));
        }
        found = found.or(grammar);
    }
    Ok(found)
}

/// A field that holds one form; `place` is where it stands.
fn read_value(kind: &str, place: &str, value: Value) -> FormResult<Option<Grammar>> {
    let wrong =
        |expected: &str| Err(fault(FormFaultKind::Type, place, format!("`{place}` must be {expected}")));
    Ok(Some(match (kind, value) {
        // Clients send schemas as texts too.
        ("guided_json" | "json_schema", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(schema @ (Value::Object(_) | Value::Bool(true))) => Grammar::Json(schema),
            _ => return wrong("a JSON schema"),
        },
        ("guided_json" | "json_schema", schema @ (Value::Object(_) | Value::Bool(true))) => {
            Grammar::Json(schema)
        }
        ("guided_json" | "json_schema", _) => return wrong("a JSON schema, which is an object"),
        ("guided_regex" | "regex", Value::String(regex)) => Grammar::Regex(regex),
        ("guided_regex" | "regex", _) => return wrong("a regular expression, which is a text"),
        ("guided_choice", Value::Array(texts)) if !texts.is_empty() && texts.len() <= MAX_TEXTS => {
            let texts = texts.into_iter().map(|text| match text {
                Value::String(text) if !text.is_empty() => Ok(Grammar::Text(text)),
                _ => {
                    let text = format!("`{place}` must be a list of texts that are not empty");
                    Err(fault(FormFaultKind::Type, place, text))
                }
            });
            Grammar::Choice(texts.collect::<FormResult<_>>()?)
        }
        ("guided_choice", _) => return wrong(&format!("a list of 1 to {MAX_TEXTS} texts")),
        (_, Value::String(text)) if text.is_empty() => return Ok(None),
        (_, Value::String(text)) => {
            let damaged = |error| FormFault { place: place.into(), kind: FormFaultKind::Grammar, error };
            Grammar::of_rules(&text).map_err(damaged)?
        }
        _ => return wrong("a grammar, which is a text"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(body: Value) -> FormResult<Option<RequestedForm>> {
        read_form(|name| Ok(body.get(name).cloned()))
    }

    #[test]
    fn every_spelling_asks_for_the_same_form() {
        let schema = json!({ "type": "array" });
        for body in [
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": schema } } }),
            json!({ "structured_outputs": { "json": schema }, "regex": null }),
            json!({ "guided_json": schema.to_string() }),
        ] {
            let found = form(body.clone()).unwrap().unwrap();
            assert_eq!(found.grammar, Grammar::Json(schema.clone()), "{body}");
            assert!(body.get(found.field).is_some());
        }
        assert_eq!(form(json!({ "response_format": { "type": "text" }, "other": 5 })).unwrap(), None);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        use FormFaultKind::*;
        for (body, place, kind) in [
            (json!({ "response_format": 5 }), "response_format", Type),
            (json!({ "response_format": { "type": "xml" } }), "response_format.type", Unsupported),
            (
                json!({ "response_format": { "type": "json_schema" } }),
                "response_format.json_schema.schema",
                Missing,
            ),
            (json!({ "regex": "a", "guided_regex": "a" }), "regex", Value),
            (json!({ "grammar": "root ::= b" }), "grammar", Grammar),
        ] {
            let found = form(body).unwrap_err();
            assert_eq!((found.place.as_str(), found.kind), (place, kind));
        }
    }
}
