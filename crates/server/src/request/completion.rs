//! The body of `/v1/completions`.

use super::grammar;
use super::prompts::{Prompt, Prompts};
use super::sampling::{Common, MAX_CHOICES, MAX_LOGPROBS, NAMES};
use crate::error::ApiError;
use crate::fields::{Fields, Parsed, Unsupported};

/// Fields of completions alone.
const OWN: &[&str] = &["prompt", "echo", "logprobs", "max_tokens", "suffix", "prompt_embeds"];

const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "suffix", neutral: &["\"\""], advice: "put the text behind the gap into the prompt" },
    Unsupported { name: "prompt_embeds", neutral: &[], advice: "give the prompt as text or token ids" },
];

/// New tokens if the request does not say how many.
const MAX_TOKENS: usize = 16;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// Whether the prompt is a part of the answer's text.
    pub echo: bool,
    /// How many of the likeliest tokens are told for each token.
    pub logprobs: Option<usize>,
    /// At most this many new tokens.
    pub max_tokens: usize,
    /// What chats have too.
    pub common: Common,
}

impl CompletionRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Parsed<CompletionRequest> {
        let fields = Fields::parse(body, &[OWN, NAMES, grammar::NAMES])?;
        fields.refuse(UNSUPPORTED)?;
        let common = Common::read(&fields)?;
        let Prompts::<MAX_CHOICES>(prompts) = fields.expect_field("prompt")?;
        if prompts.len() * common.n > MAX_CHOICES {
            let text = format!(
                "{} prompts with {} answers each are more than {MAX_CHOICES}",
                prompts.len(),
                common.n
            );
            return Err(ApiError::bad_field("n", text).with_code("invalid_value"));
        }
        let logprobs = fields.integer("logprobs", 0..=MAX_LOGPROBS as i64)?;
        Ok(CompletionRequest {
            prompts,
            echo: fields.flag("echo")?,
            logprobs: logprobs.and_then(|count| usize::try_from(count).ok()),
            max_tokens: fields.count("max_tokens", 0)?.unwrap_or(MAX_TOKENS),
            common,
        })
    }
}
