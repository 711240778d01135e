//! Functions that a model may call.

use crate::error::ApiError;
use crate::fields::{Fields, Parsed};
use crate::tool_grammar::{ToolChoice, ToolFunction};
use serde_json::Value;

/// Most functions of a request.
const MAX_TOOLS: usize = 512;
/// Longest name of a function, bytes.
const MAX_NAME: usize = 64;

/// The functions as the template is given them, and which of them an answer may or must call.
///
/// # Errors
/// If one is described wrongly, or if a call is demanded of a function that there is not.
pub fn read(fields: &Fields<'_>) -> Parsed<(Option<Vec<Value>>, ToolChoice)> {
    let choice: Option<Value> = fields.optional("tool_choice")?;
    let parallel = fields.optional("parallel_tool_calls")?.unwrap_or(true);
    let tools: Vec<Value> = fields.optional("tools")?.unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        let text = format!("`tools` has {} functions, at most {MAX_TOOLS} are taken", tools.len());
        return Err(ApiError::bad_field("tools", text).with_code("invalid_value"));
    }
    let functions = tools.iter().enumerate().map(|(i, tool)| read_function(&format!("tools[{i}]"), tool));
    let functions = functions.collect::<Parsed<Vec<_>>>()?;
    let (required, functions) = match read_choice(choice.as_ref())? {
        Demand::Nothing => return Ok((None, ToolChoice::default())),
        Demand::Free => (false, functions),
        Demand::Any => (true, functions),
        Demand::Named(name) => {
            (true, functions.into_iter().filter(|function| function.name == name).collect())
        }
    };
    if required && functions.is_empty() {
        let text = "`tool_choice` demands a call of a function that `tools` does not have";
        return Err(ApiError::bad_field("tool_choice", text).with_code("invalid_value"));
    }
    if tools.is_empty() {
        return Ok((None, ToolChoice::default()));
    }
    Ok((Some(tools), ToolChoice { functions, required, parallel }))
}

/// What `tool_choice` says.
enum Demand {
    /// No call.
    Nothing,
    /// A call or none.
    Free,
    /// A call of any function.
    Any,
    /// A call of this function.
    Named(String),
}

fn read_choice(choice: Option<&Value>) -> Parsed<Demand> {
    let named = choice.and_then(|choice| choice.pointer("/function/name")).and_then(Value::as_str);
    match (choice, named) {
        (None | Some(Value::Null), _) => Ok(Demand::Free),
        (Some(Value::String(choice)), _) if choice == "auto" => Ok(Demand::Free),
        (Some(Value::String(choice)), _) if choice == "none" => Ok(Demand::Nothing),
        (Some(Value::String(choice)), _) if choice == "required" || choice == "any" => Ok(Demand::Any),
        (_, Some(name)) => Ok(Demand::Named(name.into())),
        _ => {
            let text = "`tool_choice` must be `auto`, `none`, `required` or an object with `function.name`";
            Err(ApiError::bad_field("tool_choice", text).with_code("invalid_value"))
        }
    }
}

fn read_function(place: &str, tool: &Value) -> Parsed<ToolFunction> {
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
    let parameters = match function.get("parameters") {
        None | Some(Value::Null) => None,
        Some(schema @ Value::Object(_)) => Some(schema.clone()),
        Some(_) => return wrong(format!("{place}.function.parameters"), "a JSON schema, which is an object"),
    };
    let strict = function.get("strict") == Some(&Value::Bool(true));
    Ok(ToolFunction { name: name.into(), parameters, strict })
}
