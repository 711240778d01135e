//! The body of `/v1/chat/completions`.

use super::grammar;
use super::images::ImageFiles;
use super::messages;
use super::sampling::{Common, MAX_LOGPROBS, NAMES};
use super::tools;
use crate::error::ApiError;
use crate::fields::{Fields, Parsed, Unsupported};
use crate::tool_grammar::ToolChoice;
use serde_json::{Map, Value};
use tapml_engine::Chat;

/// Fields that reach the template.
pub const TEMPLATE_NAMES: &[&str] = &[
    "messages",
    "documents",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "reasoning_effort",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template",
];

/// Fields of chats alone.
const OWN: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "logprobs",
    "top_logprobs",
    "functions",
    "function_call",
    "modalities",
    "audio",
    "prediction",
    "web_search_options",
    "echo",
];

const TOOLS: &str = "use `tools`";

const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "functions", neutral: &["[]"], advice: TOOLS },
    Unsupported { name: "function_call", neutral: &["\"none\""], advice: TOOLS },
    Unsupported { name: "audio", neutral: &[], advice: "only text is made" },
    Unsupported { name: "prediction", neutral: &[], advice: "leave it out" },
    Unsupported { name: "web_search_options", neutral: &[], advice: "leave it out" },
    Unsupported { name: "echo", neutral: &["false"], advice: "use /v1/completions" },
];

const UNSUPPORTED_INPUT: &[Unsupported] = &[Unsupported {
    name: "chat_template",
    neutral: &[],
    advice: "start the server with `--chat-template FILE`",
}];

/// A chat, and the images in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatInput {
    /// What the template is given.
    pub chat: Chat,
    /// Files of images, one for each part of the type `image` of the messages, in order.
    pub images: ImageFiles,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// What is to be answered.
    pub input: ChatInput,
    /// The functions that the answer may or must call.
    pub tools: ToolChoice,
    /// At most this many new tokens; as many as the context holds if it is not given.
    pub max_tokens: Option<usize>,
    /// How many of the likeliest tokens are told for each token.
    pub logprobs: Option<usize>,
    /// What completions have too.
    pub common: Common,
}

impl ChatRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Parsed<ChatRequest> {
        let fields = Fields::parse(body, &[OWN, TEMPLATE_NAMES, NAMES, grammar::NAMES])?;
        fields.refuse(UNSUPPORTED)?;
        expect_text(&fields)?;
        let max_tokens = fields.count("max_completion_tokens", 1)?;
        let (input, tools) = template_input(&fields)?;
        Ok(ChatRequest {
            common: Common::read(&fields)?,
            max_tokens: max_tokens.or(fields.count("max_tokens", 1)?),
            logprobs: logprobs(&fields)?,
            input,
            tools,
        })
    }
}

/// What a template is given, and the functions that it is told of.
pub fn template_input(fields: &Fields<'_>) -> Parsed<(ChatInput, ToolChoice)> {
    fields.refuse(UNSUPPORTED_INPUT)?;
    let mut options: Map<String, Value> = fields.optional("chat_template_kwargs")?.unwrap_or_default();
    let effort: Option<String> = fields.optional("reasoning_effort")?;
    if let Some(effort) = effort {
        options.entry("reasoning_effort").or_insert(effort.into());
    }
    let (tools, choice) = tools::read(fields)?;
    if fields.flag("continue_final_message")? && fields.raw("add_generation_prompt") == Some("true") {
        let text =
            "`add_generation_prompt` and `continue_final_message` exclude one another; set one of them";
        return Err(ApiError::bad_field("continue_final_message", text).with_code("invalid_value"));
    }
    let (messages, images) = messages::read(fields.expect_field("messages")?)?;
    let chat = Chat {
        messages,
        tools,
        documents: fields.optional("documents")?,
        options,
        continue_final_message: fields.flag("continue_final_message")?,
        add_generation_prompt: fields.optional("add_generation_prompt")?.unwrap_or(true),
    };
    Ok((ChatInput { chat, images }, choice))
}

/// Fails if the answer is to be something else than text.
fn expect_text(fields: &Fields<'_>) -> Parsed<()> {
    let modalities: Option<Vec<String>> = fields.optional("modalities")?;
    match modalities.into_iter().flatten().find(|modality| modality != "text") {
        Some(other) => {
            let text = format!("`modalities` has `{other}`; only `text` is made");
            Err(ApiError::unsupported_field("modalities", text))
        }
        None => Ok(()),
    }
}

fn logprobs(fields: &Fields<'_>) -> Parsed<Option<usize>> {
    let top = fields.integer("top_logprobs", 0..=MAX_LOGPROBS as i64)?;
    let top = top.and_then(|top| usize::try_from(top).ok());
    if fields.flag("logprobs")? {
        return Ok(Some(top.unwrap_or(0)));
    }
    if top.is_some_and(|top| top > 0) {
        let text = "`top_logprobs` is only allowed together with `logprobs`: true";
        return Err(ApiError::bad_field("top_logprobs", text));
    }
    Ok(None)
}
