//! The body of OpenAI's `/v1/responses`, which becomes that of a chat.

use super::chat::ChatRequest;
use super::translation::{ChatBody, SHARED, image_part, join_texts, part_text, text, text_part, wrong};
use crate::error::ApiError;
use crate::fields::{Fields, Parsed, Unsupported};
use serde_json::{Map, Value, json};

const OWN: &[&str] = &[
    "input",
    "instructions",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "metadata",
    "include",
    "top_logprobs",
    "previous_response_id",
    "conversation",
    "background",
    "prompt",
    "max_tool_calls",
];

const STATELESS: &str = "nothing is kept between requests; give the whole conversation as `input`";

const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "previous_response_id", neutral: &[], advice: STATELESS },
    Unsupported { name: "conversation", neutral: &[], advice: STATELESS },
    Unsupported { name: "background", neutral: &["false"], advice: "use `stream`" },
    Unsupported { name: "prompt", neutral: &[], advice: "give its text as `instructions` and `input`" },
    Unsupported { name: "top_logprobs", neutral: &["0"], advice: "use /v1/chat/completions" },
    Unsupported { name: "max_tool_calls", neutral: &[], advice: "it is for tools that run at OpenAI" },
    Unsupported { name: "n", neutral: &["1"], advice: "ask again for another answer" },
    Unsupported { name: "response_format", neutral: &[], advice: "use `text.format`" },
    Unsupported { name: "stop", neutral: &[], advice: "use /v1/chat/completions" },
];

/// Names of chats, and those that clients know.
pub const RENAMED: &[(&str, &str)] = &[
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("messages", "input"),
];

/// All fields that are known.
const KNOWN: &[&[&str]] = &[OWN, SHARED[0], SHARED[1], SHARED[2]];

/// The text of a part.
const TEXT: &[&str] = &["input_text", "output_text", "text"];

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsesRequest {
    /// What is asked for.
    pub chat: ChatRequest,
    /// Fields that the answer repeats.
    pub repeated: Map<String, Value>,
}

impl ResponsesRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Parsed<ResponsesRequest> {
        let fields = Fields::parse(body, KNOWN)?;
        fields.refuse(UNSUPPORTED)?;
        check_include(&fields)?;
        let mut chat = ChatBody::new(&fields)?;
        chat.set("max_completion_tokens", fields.optional("max_output_tokens")?);
        chat.set("parallel_tool_calls", fields.optional("parallel_tool_calls")?);
        chat.set("response_format", response_format(&fields)?);
        let reasoning: Option<Map<String, Value>> = fields.optional("reasoning")?;
        chat.set("reasoning_effort", reasoning.and_then(|mut reasoning| reasoning.remove("effort")));
        read_tools(&fields, &mut chat)?;
        let instructions: Option<String> = fields.optional("instructions")?;
        if let Some(instructions) = instructions {
            chat.push("system", instructions);
        }
        match fields.expect_field("input")? {
            Value::String(text) => chat.push("user", text),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    read_item(&format!("input[{i}]"), item, &mut chat)?;
                }
            }
            _ => return Err(wrong("input", "a text, or a list of items")),
        }
        Ok(ResponsesRequest { chat: chat.parse(RENAMED)?, repeated: echo_fields(&fields)? })
    }
}

/// What the answer says of the request. Clients expect each of these fields.
fn echo_fields(fields: &Fields<'_>) -> Parsed<Map<String, Value>> {
    let defaults = [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", true.into()),
        ("reasoning", json!({ "effort": null, "summary": null })),
        ("temperature", json!(1.0)),
        ("text", json!({ "format": { "type": "text" } })),
        ("tool_choice", "auto".into()),
        ("tools", json!([])),
        ("top_p", json!(1.0)),
    ];
    let field = |(name, default): (&str, Value)| Ok((name.into(), fields.optional(name)?.unwrap_or(default)));
    defaults.into_iter().map(field).collect()
}

/// Fails if more is to be told than there is.
fn check_include(fields: &Fields<'_>) -> Parsed<()> {
    let include: Vec<String> = fields.optional("include")?.unwrap_or_default();
    match include.iter().find(|name| name.as_str() == "message.output_text.logprobs") {
        None => Ok(()),
        Some(name) => {
            let text = format!("`include` has `{name}`, which is not served; use /v1/chat/completions");
            Err(ApiError::unsupported_field("include", text))
        }
    }
}

/// The form of the answer, as chats describe it.
fn response_format(fields: &Fields<'_>) -> Parsed<Option<Value>> {
    let text: Option<Map<String, Value>> = fields.optional("text")?;
    let Some(format) = text.and_then(|mut text| text.remove("format")).filter(|format| !format.is_null())
    else {
        return Ok(None);
    };
    let Value::Object(mut format) = format else {
        return Err(wrong("text.format", "an object with `type`"));
    };
    let kind = format.remove("type");
    let mut written = json!({ "type": kind });
    if kind == Some("json_schema".into()) {
        written["json_schema"] = format.into();
    }
    Ok(Some(written))
}

fn read_tools(fields: &Fields<'_>, chat: &mut ChatBody) -> Parsed<()> {
    let tools: Vec<Value> = fields.optional("tools")?.unwrap_or_default();
    let tools = tools.into_iter().enumerate().map(|(i, tool)| read_tool(&format!("tools[{i}]"), tool));
    chat.set("tools", Some(tools.collect::<Parsed<Vec<Value>>>()?.into()));
    let choice: Option<Value> = fields.optional("tool_choice")?;
    let choice = match choice {
        Some(Value::Object(choice)) if choice.get("type") == Some(&"function".into()) => {
            let name = choice.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| wrong("tool_choice.name", "the name of a function"))?;
            Some(json!({ "type": "function", "function": { "name": name } }))
        }
        choice => choice,
    };
    chat.set("tool_choice", choice);
    Ok(())
}

/// A function as chats describe it.
fn read_tool(place: &str, mut tool: Value) -> Parsed<Value> {
    let kind = text(place, &tool, "type")?;
    if kind != "function" {
        let text =
            format!("`{place}` is of the type `{kind}`; only `function` is served, the others run at OpenAI");
        return Err(ApiError::unsupported_field(&format!("{place}.type"), text));
    }
    text(place, &tool, "name")?;
    let Some(function) = tool.as_object_mut() else { return Err(wrong(place, "an object")) };
    function.remove("type");
    Ok(json!({ "type": "function", "function": function }))
}

fn read_item(place: &str, item: &Value, chat: &mut ChatBody) -> Parsed<()> {
    match item.get("type") {
        None | Some(Value::Null) => return read_message(place, item, chat),
        Some(Value::String(kind)) if kind == "message" => return read_message(place, item, chat),
        Some(_) => {}
    }
    match text(place, item, "type")? {
        "function_call" => {
            let arguments = text(place, item, "arguments")?;
            chat.push_call(text(place, item, "call_id")?, text(place, item, "name")?, arguments.into());
            Ok(())
        }
        "function_call_output" => {
            let output = item.get("output").unwrap_or(&Value::Null);
            let output = join_texts(&format!("{place}.output"), output, TEXT)?;
            chat.push_result(text(place, item, "call_id")?, output);
            Ok(())
        }
        // Thoughts of former answers are not given again.
        "reasoning" => Ok(()),
        "item_reference" => {
            let text = format!("`{place}` refers to an item of another answer; {STATELESS}");
            Err(ApiError::unsupported_field(&format!("{place}.type"), text))
        }
        kind => {
            let text = format!(
                "`{place}` is of the type `{kind}`; messages, `function_call` and `function_call_output` are served"
            );
            Err(ApiError::unsupported_field(&format!("{place}.type"), text))
        }
    }
}

fn read_message(place: &str, item: &Value, chat: &mut ChatBody) -> Parsed<()> {
    let role = text(place, item, "role")?;
    if !["user", "assistant", "system", "developer"].contains(&role) {
        return Err(wrong(&format!("{place}.role"), "`user`, `assistant`, `system` or `developer`"));
    }
    let content = item.get("content").unwrap_or(&Value::Null);
    let place = format!("{place}.content");
    let Value::Array(parts) = content else {
        chat.push(role, join_texts(&place, content, TEXT)?);
        return Ok(());
    };
    let read = |(i, part): (usize, &Value)| {
        let place = format!("{place}[{i}]");
        if part["type"] != "input_image" {
            return Ok(text_part(part_text(&place, part, TEXT)?));
        }
        if part.get("file_id").is_some_and(|id| !id.is_null()) {
            let text = format!("`{place}.file_id` names a file; {STATELESS}");
            return Err(ApiError::unsupported_field(&format!("{place}.file_id"), text));
        }
        image_part(&format!("{place}.image_url"), text(&place, part, "image_url")?)
    };
    let parts = parts.iter().enumerate().map(read).collect::<Parsed<Vec<Value>>>()?;
    chat.push_parts(role, parts);
    Ok(())
}
