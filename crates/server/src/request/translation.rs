//! Bodies of other APIs, put together to the body of a chat.

use super::chat::ChatRequest;
use super::images;
use super::{grammar, sampling};
use crate::error::ApiError;
use crate::fields::{Fields, Parsed};
use serde_json::{Map, Value, json};

/// Fields that the other APIs share with chats, or take beside their own.
pub const SHARED: &[&[&str]] = &[sampling::NAMES, grammar::NAMES, &["chat_template_kwargs"]];

/// Of these, those that the other APIs name in their own way, or do not have.
const NOT_TAKEN: &[&str] = &["n", "best_of", "stop", "stream_options", "response_format"];

/// The body of a chat that is being put together.
pub struct ChatBody {
    fields: Map<String, Value>,
    messages: Vec<Value>,
}

impl ChatBody {
    /// A body with the fields that have the same name and meaning in both.
    pub fn new(fields: &Fields<'_>) -> Parsed<ChatBody> {
        let mut body = ChatBody { fields: Map::new(), messages: Vec::new() };
        for name in SHARED.iter().copied().flatten().filter(|name| !NOT_TAKEN.contains(name)) {
            body.set(name, fields.optional(name)?);
        }
        Ok(body)
    }

    /// Sets a field, if there is a value.
    pub fn set(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.fields.insert(name.into(), value);
        }
    }

    /// Adds a message.
    pub fn push(&mut self, role: &str, content: impl Into<Value>) {
        self.messages.push(json!({ "role": role, "content": content.into() }));
    }

    /// Adds a message of parts, as [`text_part`] and [`image_part`] give them. Texts alone are joined.
    pub fn push_parts(&mut self, role: &str, parts: Vec<Value>) {
        if parts.iter().any(|part| part["type"] != "text") {
            return self.push(role, parts);
        }
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        self.push(role, texts.join("\n"));
    }

    /// Adds what a function answered.
    pub fn push_result(&mut self, call: &str, content: String) {
        self.messages.push(json!({ "role": "tool", "tool_call_id": call, "content": content }));
    }

    /// Adds a call to the message of the assistant that is the last one, or to a new one.
    pub fn push_call(&mut self, id: &str, name: &str, arguments: Value) {
        if self.last_role() != Some("assistant") {
            self.push("assistant", Value::Null);
        }
        let call =
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        if let Some(Value::Object(last)) = self.messages.last_mut() {
            match last.get_mut("tool_calls") {
                Some(Value::Array(calls)) => calls.push(call),
                _ => drop(last.insert("tool_calls".into(), json!([call]))),
            }
        }
    }

    /// Who spoke last.
    pub fn last_role(&self) -> Option<&str> {
        self.messages.last()?.get("role")?.as_str()
    }

    /// Reads it as chats are read. Errors name fields by the second of these names in place of the first.
    pub fn parse(mut self, names: &[(&str, &str)]) -> Parsed<ChatRequest> {
        self.fields.insert("messages".into(), self.messages.into());
        ChatRequest::parse(Value::from(self.fields).to_string().as_bytes())
            .map_err(|error| error.rename_param(names))
    }
}

/// A value of another type than the API has there.
pub fn wrong(place: &str, expected: &str) -> ApiError {
    ApiError::bad_field(place, format!("`{place}` must be {expected}")).with_code("invalid_type")
}

/// The text of this name in an object.
pub fn text<'a>(place: &str, object: &'a Value, name: &str) -> Parsed<&'a str> {
    object.get(name).and_then(Value::as_str).ok_or_else(|| wrong(&format!("{place}.{name}"), "a text"))
}

/// A content that is a text, or a list of parts of these types, which are joined.
pub fn join_texts(place: &str, content: &Value, types: &[&str]) -> Parsed<String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let parts = parts.iter().enumerate();
            let texts = parts.map(|(i, part)| part_text(&format!("{place}[{i}]"), part, types));
            Ok(texts.collect::<Parsed<Vec<&str>>>()?.join("\n"))
        }
        _ => Err(wrong(place, "a text, or a list of parts")),
    }
}

/// The text of a part, which is of one of these types.
pub fn part_text<'a>(place: &str, part: &'a Value, types: &[&str]) -> Parsed<&'a str> {
    let kind = text(place, part, "type")?;
    if !types.contains(&kind) {
        return Err(unserved_part(place, kind));
    }
    text(place, part, "text")
}

/// A text as a part of a chat's message.
pub fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// An image as a part of a chat's message; its data URL stands at `place`.
pub fn image_part(place: &str, url: &str) -> Parsed<Value> {
    // What is wrong is told by the name that it has here.
    images::read_url(place, url)?;
    Ok(json!({ "type": "image_url", "image_url": { "url": url } }))
}

/// A part that the model cannot be given.
pub fn unserved_part(place: &str, kind: &str) -> ApiError {
    let text = format!("`{place}` is of the type `{kind}`, which is not served here; give text");
    ApiError::unsupported_field(&format!("{place}.type"), text)
}
