//! The messages of a chat, brought to the form that templates know.

use super::images::{self, ImageFiles};
use crate::error::ApiError;
use crate::fields::Parsed;
use serde_json::{Map, Value, json};

/// Who may speak.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Messages as templates take them, and the files of their images: contents are texts, or lists of texts and places of images,
/// and arguments of calls are objects.
///
/// # Errors
/// Names the field of the first message that is wrong, or that holds what the model cannot be given.
pub fn read(messages: Vec<Value>) -> Parsed<(Vec<Value>, ImageFiles)> {
    if messages.is_empty() {
        return Err(ApiError::bad_field("messages", "`messages` is empty; a chat has at least one message"));
    }
    let mut images = ImageFiles::new();
    let messages = messages
        .into_iter()
        .enumerate()
        .map(|(i, message)| read_message(&format!("messages[{i}]"), message, &mut images));
    Ok((messages.collect::<Parsed<Vec<Value>>>()?, images))
}

fn read_message(place: &str, message: Value, images: &mut ImageFiles) -> Parsed<Value> {
    let Value::Object(mut message) = message else {
        return Err(wrong(place, "an object with `role` and `content`"));
    };
    let roles = || wrong(&format!("{place}.role"), &format!("one of {}", ROLES.join(", ")));
    let role = message.get("role").and_then(Value::as_str).ok_or_else(roles)?.to_string();
    if !ROLES.contains(&role.as_str()) {
        return Err(roles());
    }
    // Templates know the older name of the role alone.
    if role == "developer" {
        message.insert("role".into(), "system".into());
    }
    if role == "assistant" {
        read_calls(place, &mut message)?;
    }
    let calls = message.contains_key("tool_calls");
    let content = match message.remove("content") {
        None | Some(Value::Null) if calls => Value::Null,
        Some(Value::String(text)) => Value::String(text),
        Some(Value::Array(parts)) => read_parts(place, &role, parts, images)?,
        _ => {
            let expected = "a text, or a list of parts of the types `text` and `image_url`";
            return Err(wrong(&format!("{place}.content"), expected));
        }
    };
    message.insert("content".into(), content);
    Ok(Value::Object(message))
}

/// The texts of a message's parts, one a line; with an image, a list of texts and places of images.
fn read_parts(place: &str, role: &str, parts: Vec<Value>, images: &mut ImageFiles) -> Parsed<Value> {
    let (mut read, before) = (Vec::new(), images.len());
    for (i, part) in parts.into_iter().enumerate() {
        let place = format!("{place}.content[{i}]");
        match part.get("type").and_then(Value::as_str) {
            Some(kind @ ("text" | "refusal")) => match part.get(kind) {
                Some(Value::String(text)) => read.push(json!({ "type": "text", "text": text })),
                _ => return Err(wrong(&format!("{place}.{kind}"), "a text")),
            },
            Some("image_url") if role == "user" => {
                let url = part.get("image_url");
                // Some clients leave the object around it out.
                let url = url.and_then(|url| url.get("url").unwrap_or(url).as_str());
                let place = format!("{place}.image_url.url");
                let url = url.ok_or_else(|| wrong(&place, "a data URL"))?;
                images::add(images, images::read_url(&place, url)?)?;
                read.push(json!({ "type": "image" }));
            }
            Some(kind) => {
                let text = format!(
                    "`{place}` is of the type `{kind}`; parts of the type `text` are served, and `image_url` of the user"
                );
                return Err(ApiError::unsupported_field(&format!("{place}.type"), text));
            }
            None => return Err(wrong(&format!("{place}.type"), "the text `text` or `image_url`")),
        }
    }
    if images.len() > before {
        return Ok(read.into());
    }
    let texts: Vec<&str> = read.iter().filter_map(|part| part["text"].as_str()).collect();
    Ok(texts.join("\n").into())
}

/// Arguments of calls are texts in the API, and objects to templates.
fn read_calls(place: &str, message: &mut Map<String, Value>) -> Parsed<()> {
    let place = format!("{place}.tool_calls");
    match message.get_mut("tool_calls") {
        None => return Ok(()),
        Some(Value::Array(calls)) if !calls.is_empty() => {
            for (i, call) in calls.iter_mut().enumerate() {
                let expected = || {
                    wrong(
                        &format!("{place}[{i}].function"),
                        "an object with the texts `name` and `arguments`",
                    )
                };
                let function =
                    call.get_mut("function").and_then(Value::as_object_mut).ok_or_else(expected)?;
                function.get("name").and_then(Value::as_str).ok_or_else(expected)?;
                let arguments = function.get_mut("arguments").ok_or_else(expected)?;
                let read = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
                if let Some(read @ Value::Object(_)) = read {
                    *arguments = read;
                }
            }
            return Ok(());
        }
        Some(Value::Null) => {}
        Some(Value::Array(_)) => {}
        Some(_) => return Err(wrong(&place, "a list")),
    }
    // Templates ask whether there are calls by the name alone.
    message.remove("tool_calls");
    Ok(())
}

fn wrong(place: &str, expected: &str) -> ApiError {
    ApiError::bad_field(place, format!("`{place}` must be {expected}")).with_code("invalid_type")
}
