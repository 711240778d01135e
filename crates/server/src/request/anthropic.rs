//! The body of Anthropic's `/v1/messages`, which becomes that of a chat.

use super::chat::ChatRequest;
use super::translation::{
    ChatBody, SHARED, image_part, join_texts, part_text, text, text_part, unserved_part, wrong,
};
use crate::error::ApiError;
use crate::fields::{Fields, Parsed, Unsupported};
use serde_json::{Map, Value, json};

const OWN: &[&str] = &[
    "messages",
    "system",
    "max_tokens",
    "stop_sequences",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "output_format",
    "container",
    "mcp_servers",
];

const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "n", neutral: &["1"], advice: "ask again for another answer" },
    Unsupported { name: "stop", neutral: &[], advice: "use `stop_sequences`" },
    Unsupported { name: "response_format", neutral: &[], advice: "use `output_config.format`" },
    Unsupported { name: "container", neutral: &[], advice: "leave it out" },
    Unsupported { name: "mcp_servers", neutral: &["[]"], advice: "give their functions as `tools`" },
];

/// Names of chats, and those that clients know.
pub const RENAMED: &[(&str, &str)] =
    &[("stop", "stop_sequences"), ("response_format", "output_config.format")];

/// All fields that are known.
const KNOWN: &[&[&str]] = &[OWN, SHARED[0], SHARED[1], SHARED[2]];

/// The text of a block.
const TEXT: &[&str] = &["text"];

/// Reads a body.
pub fn parse(body: &[u8]) -> Parsed<ChatRequest> {
    let fields = Fields::parse(body, KNOWN)?;
    fields.refuse(UNSUPPORTED)?;
    check_thinking(&fields)?;
    let mut chat = ChatBody::new(&fields)?;
    chat.set("max_tokens", fields.optional("max_tokens")?);
    let stops: Option<Vec<Value>> = fields.optional("stop_sequences")?;
    chat.set("stop", stops.map(Value::from));
    chat.set("response_format", response_format(&fields)?);
    read_tools(&fields, &mut chat)?;
    let system: Option<Value> = fields.optional("system")?;
    if let Some(system) = system {
        chat.push("system", join_texts("system", &system, TEXT)?);
    }
    let messages: Vec<Value> = fields.expect_field("messages")?;
    if messages.is_empty() {
        return Err(ApiError::bad_field("messages", "`messages` is empty; give at least one message"));
    }
    for (i, message) in messages.iter().enumerate() {
        read_message(&format!("messages[{i}]"), message, &mut chat)?;
    }
    // An answer that the client has begun is gone on with.
    if chat.last_role() == Some("assistant") {
        chat.set("continue_final_message", Some(true.into()));
        chat.set("add_generation_prompt", Some(false.into()));
    }
    chat.parse(RENAMED)
}

/// Fails if thoughts are demanded. A model that thinks unasked writes its thoughts as text.
fn check_thinking(fields: &Fields<'_>) -> Parsed<()> {
    let thinking: Option<Map<String, Value>> = fields.optional("thinking")?;
    match thinking.as_ref().map(|thinking| thinking.get("type").and_then(Value::as_str)) {
        None | Some(Some("disabled" | "adaptive")) => Ok(()),
        Some(_) => {
            let text = "`thinking` must be of the type `disabled` or `adaptive`; use `chat_template_kwargs` for templates that \
                 know a switch";
            Err(ApiError::unsupported_field("thinking", text))
        }
    }
}

/// The form of the answer, which has an older name too.
fn response_format(fields: &Fields<'_>) -> Parsed<Option<Value>> {
    let config: Option<Map<String, Value>> = fields.optional("output_config")?;
    let format = config.and_then(|mut config| config.remove("format"));
    let format = format.or(fields.optional("output_format")?).filter(|format| !format.is_null());
    Ok(format.map(|format| {
        let json_schema = json!({ "name": "answer", "schema": format.get("schema"), "strict": true });
        json!({ "type": format.get("type"), "json_schema": json_schema })
    }))
}

fn read_tools(fields: &Fields<'_>, chat: &mut ChatBody) -> Parsed<()> {
    let tools: Vec<Value> = fields.optional("tools")?.unwrap_or_default();
    let tools = tools.iter().enumerate().map(|(i, tool)| read_tool(&format!("tools[{i}]"), tool));
    chat.set("tools", Some(tools.collect::<Parsed<Vec<Value>>>()?.into()));
    let choice: Option<Value> = fields.optional("tool_choice")?;
    let Some(choice) = choice else { return Ok(()) };
    let name = || text("tool_choice", &choice, "name");
    let chosen = match text("tool_choice", &choice, "type")? {
        kind @ ("auto" | "none") => kind.into(),
        "any" => "required".into(),
        "tool" => json!({ "type": "function", "function": { "name": name()? } }),
        _ => return Err(wrong("tool_choice.type", "`auto`, `any`, `tool` or `none`")),
    };
    chat.set("tool_choice", Some(chosen));
    match choice.get("disable_parallel_tool_use") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(one)) => chat.set("parallel_tool_calls", Some((!one).into())),
        Some(_) => return Err(wrong("tool_choice.disable_parallel_tool_use", "true or false")),
    }
    Ok(())
}

/// A function as chats describe it.
fn read_tool(place: &str, tool: &Value) -> Parsed<Value> {
    match tool.get("type") {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) if kind == "custom" => {}
        Some(kind) => {
            let text = format!(
                "`{place}` is of the type {kind}; only `custom` is served, the others run at Anthropic or are its own"
            );
            return Err(ApiError::unsupported_field(&format!("{place}.type"), text));
        }
    }
    let name = text(place, tool, "name")?;
    let schema = tool.get("input_schema").filter(|schema| schema.is_object());
    let schema =
        schema.ok_or_else(|| wrong(&format!("{place}.input_schema"), "a JSON schema, which is an object"))?;
    let mut function = json!({ "name": name, "parameters": schema });
    for name in ["description", "strict"] {
        if let Some(value) = tool.get(name) {
            function[name] = value.clone();
        }
    }
    Ok(json!({ "type": "function", "function": function }))
}

fn read_message(place: &str, message: &Value, chat: &mut ChatBody) -> Parsed<()> {
    let role = text(place, message, "role")?;
    if !["user", "assistant", "system"].contains(&role) {
        return Err(wrong(&format!("{place}.role"), "`user` or `assistant`"));
    }
    let place = format!("{place}.content");
    let blocks = match message.get("content") {
        Some(Value::String(text)) => {
            chat.push(role, text.clone());
            return Ok(());
        }
        Some(Value::Array(blocks)) => blocks,
        _ => return Err(wrong(&place, "a text, or a list of blocks")),
    };
    let mut parts = Vec::new();
    let mut calls = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        let place = format!("{place}[{i}]");
        match (text(&place, block, "type")?, role) {
            ("tool_use", "assistant") => calls.push((place, block)),
            // Thoughts of former answers are not given again.
            ("thinking" | "redacted_thinking", "assistant") => {}
            ("tool_result", "user") => {
                push_parts(role, &mut parts, chat);
                let content = block.get("content").unwrap_or(&Value::Null);
                let content = match content {
                    Value::Null => String::new(),
                    content => join_texts(&format!("{place}.content"), content, TEXT)?,
                };
                chat.push_result(text(&place, block, "tool_use_id")?, content);
            }
            ("text", _) => parts.push(text_part(part_text(&place, block, TEXT)?)),
            ("image", "user") => parts.push(read_image(&place, block)?),
            (kind, _) => return Err(unserved_part(&place, kind)),
        }
    }
    if parts.is_empty() && blocks.iter().all(|block| block["type"] != "tool_result") {
        // A message without text is one too.
        chat.push(role, if calls.is_empty() { json!("") } else { Value::Null });
    }
    push_parts(role, &mut parts, chat);
    for (place, block) in calls {
        let input = block.get("input").filter(|input| input.is_object());
        let input = input.ok_or_else(|| wrong(&format!("{place}.input"), "an object"))?;
        chat.push_call(text(&place, block, "id")?, text(&place, block, "name")?, input.clone());
    }
    Ok(())
}

/// An image as chats have it.
fn read_image(place: &str, block: &Value) -> Parsed<Value> {
    let place = format!("{place}.source");
    let source = block.get("source").unwrap_or(&Value::Null);
    match text(&place, source, "type")? {
        "base64" => {
            let (kind, data) = (text(&place, source, "media_type")?, text(&place, source, "data")?);
            image_part(&format!("{place}.data"), &format!("data:{kind};base64,{data}"))
        }
        "url" => image_part(&format!("{place}.url"), text(&place, source, "url")?),
        _ => Err(wrong(&format!("{place}.type"), "`base64`")),
    }
}

/// Adds a message of the parts that were gathered, if there are some.
fn push_parts(role: &str, parts: &mut Vec<Value>, chat: &mut ChatBody) {
    if !parts.is_empty() {
        chat.push_parts(role, std::mem::take(parts));
    }
}
