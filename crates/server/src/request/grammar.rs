//! Structured output: the form that an answer must have. OpenAI, vLLM, SGLang and llama-server each have names of their own for
//! it.

use crate::error::ApiError;
use crate::fields::{Fields, Parsed};
use serde_json::{Map, Value, json};
use tapml_engine::Grammar;

/// Names of the fields that this file reads.
pub const NAMES: &[&str] = &[
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

/// The form, if one is wanted, with the field that says so.
pub fn read(fields: &Fields<'_>) -> Parsed<Option<(&'static str, Grammar)>> {
    let mut found: Option<(&'static str, Grammar)> = None;
    for name in NAMES {
        let Some(grammar) = read_field(fields, name)? else { continue };
        if let Some((first, _)) = found {
            let text = format!("`{first}` and `{name}` both give a form; give one of them");
            return Err(ApiError::bad_field(name, text).with_code("invalid_value"));
        }
        found = Some((name, grammar));
    }
    Ok(found)
}

fn read_field(fields: &Fields<'_>, name: &'static str) -> Parsed<Option<Grammar>> {
    match name {
        "response_format" => {
            let format: Option<Map<String, Value>> = fields.optional(name)?;
            format.map_or(Ok(None), |format| read_format(&format))
        }
        "structured_outputs" => {
            let options: Option<Map<String, Value>> = fields.optional(name)?;
            options.map_or(Ok(None), |options| read_options(&options))
        }
        _ => fields.optional::<Value>(name)?.map_or(Ok(None), |value| read_value(name, name, value)),
    }
}

/// OpenAI's `response_format`; TGI's `regex` and llama-server's schema in place are taken too.
fn read_format(format: &Map<String, Value>) -> Parsed<Option<Grammar>> {
    let Some(kind) = format.get("type").and_then(Value::as_str) else {
        let text = "`response_format.type` must be a text, such as `text`";
        return Err(ApiError::bad_field("response_format.type", text).with_code("invalid_type"));
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
            Err(ApiError::bad_field(place, text).with_code("missing_required_parameter"))
        }
        ("regex", Some(regex)) => read_value("guided_regex", "response_format.value", regex.clone()),
        _ => {
            let text = format!(
                "`response_format.type` is `{kind}`; expected `text`, `json_object` or `json_schema`"
            );
            Err(ApiError::unsupported_field("response_format.type", text))
        }
    }
}

/// vLLM's `structured_outputs`: one of its fields.
fn read_options(options: &Map<String, Value>) -> Parsed<Option<Grammar>> {
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
                return Err(ApiError::unsupported_field(&place, text));
            }
        };
        if grammar.is_some() && found.is_some() {
            let text = "`structured_outputs` gives several forms; give one of them";
            return Err(ApiError::bad_field(&place, text).with_code("invalid_value"));
        }
        found = found.or(grammar);
    }
    Ok(found)
}

/// A field that holds one form; `place` is where it stands.
fn read_value(kind: &str, place: &str, value: Value) -> Parsed<Option<Grammar>> {
    let wrong = |expected: &str| {
        let text = format!("`{place}` must be {expected}");
        Err(ApiError::bad_field(place, text).with_code("invalid_type"))
    };
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
                    Err(ApiError::bad_field(place, text).with_code("invalid_type"))
                }
            });
            Grammar::Choice(texts.collect::<Parsed<_>>()?)
        }
        ("guided_choice", _) => return wrong(&format!("a list of 1 to {MAX_TEXTS} texts")),
        (_, Value::String(text)) if text.is_empty() => return Ok(None),
        (_, Value::String(text)) => {
            Grammar::of_rules(&text).map_err(|e| ApiError::from(e).with_param(place))?
        }
        _ => return wrong("a grammar, which is a text"),
    }))
}
