//! Functions that a model may call.

use crate::error::ApiError;
use crate::fields::{Fields, Parsed};
use crate::tool_calls::ToolSet;
use serde_json::Value;

/// Most functions of a request.
const MAX_TOOLS: usize = 512;
/// Longest name of a function, bytes.
const MAX_NAME: usize = 64;

/// The functions as the template is given them, and as answers are searched for them.
///
/// # Errors
/// If one is described wrongly, or if a call is demanded, which nothing enforces.
pub fn read(fields: &Fields<'_>) -> Parsed<(Option<Vec<Value>>, ToolSet)> {
    let choice: Option<Value> = fields.optional("tool_choice")?;
    let parallel = fields.optional("parallel_tool_calls")?.unwrap_or(true);
    let tools: Vec<Value> = fields.optional("tools")?.unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        let text = format!("`tools` has {} functions, at most {MAX_TOOLS} are taken", tools.len());
        return Err(ApiError::bad_field("tools", text).with_code("invalid_value"));
    }
    let names = tools.iter().enumerate().map(|(i, tool)| read_name(&format!("tools[{i}]"), tool));
    let names = names.collect::<Parsed<_>>()?;
    match choice.as_ref() {
        None | Some(Value::Null) => {}
        Some(Value::String(choice)) if choice == "auto" => {}
        Some(Value::String(choice)) if choice == "none" => return Ok((None, ToolSet::default())),
        Some(_) => {
            let text = "`tool_choice` must be `auto` or `none`: that a function is called cannot be enforced";
            return Err(ApiError::unsupported_field("tool_choice", text));
        }
    }
    if tools.is_empty() {
        return Ok((None, ToolSet::default()));
    }
    Ok((Some(tools), ToolSet { names, parallel }))
}

fn read_name(place: &str, tool: &Value) -> Parsed<String> {
    let wrong = |place: String, expected: &str| {
        let text = format!("`{place}` must be {expected}");
        Err(ApiError::bad_field(&place, text).with_code("invalid_type"))
    };
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        return wrong(format!("{place}.type"), "the text `function`");
    }
    let Some(function) = tool.get("function").filter(|function| function.is_object()) else {
        return wrong(format!("{place}.function"), "an object with `name`, `description` and `parameters`");
    };
    let legal = |name: &&str| {
        (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    };
    let Some(name) = function.get("name").and_then(Value::as_str).filter(legal) else {
        let expected = format!("a name of 1 to {MAX_NAME} letters, digits and `_-.`");
        return wrong(format!("{place}.function.name"), &expected);
    };
    match function.get("parameters") {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(_) => return wrong(format!("{place}.function.parameters"), "a JSON schema, which is an object"),
    }
    if function.get("strict") == Some(&Value::Bool(true)) {
        let text =
            format!("`{place}.function.strict` cannot be enforced; leave it out and check the arguments");
        return Err(ApiError::unsupported_field(&format!("{place}.function.strict"), text));
    }
    Ok(name.into())
}
