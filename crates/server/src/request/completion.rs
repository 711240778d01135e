//! The body of `/v1/completions`.

use super::grammar;
use super::sampling::{Common, MAX_CHOICES, MAX_LOGPROBS, NAMES};
use crate::error::ApiError;
use crate::fields::{Fields, Parsed, Unsupported};
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};
use std::fmt;

/// Fields of completions alone.
const OWN: &[&str] = &["prompt", "echo", "logprobs", "max_tokens", "suffix", "prompt_embeds"];

const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "suffix", neutral: &["\"\""], advice: "put the text behind the gap into the prompt" },
    Unsupported { name: "prompt_embeds", neutral: &[], advice: "give the prompt as text or token ids" },
];

/// New tokens if the request does not say how many.
const MAX_TOKENS: usize = 16;

/// What is to be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
    /// Texts and token ids, one after the other. Special tokens stand before a text that is the first part.
    Parts(Vec<Prompt>),
}

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
        let Prompts(prompts) = fields.expect_field("prompt")?;
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

/// A prompt as it is written: a text, texts, ids, or lists of ids.
struct Prompts(Vec<Prompt>);

struct PromptsVisitor;

/// An element of the outer list.
enum PromptElement {
    Id(u32),
    Prompt(Prompt),
}

impl<'a> Visitor<'a> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text, token ids, or 1 to {MAX_CHOICES} texts or lists of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts(vec![Prompt::Text(text.into())]))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<Prompts, A::Error> {
        let mut ids = Vec::new();
        let mut prompts = Vec::new();
        while let Some(element) = items.next_element()? {
            match element {
                PromptElement::Id(id) if prompts.is_empty() => ids.push(id),
                PromptElement::Prompt(prompt) if ids.is_empty() && prompts.len() < MAX_CHOICES => {
                    prompts.push(prompt)
                }
                _ => return Err(A::Error::invalid_type(Unexpected::Other("another list"), &self)),
            }
        }
        if prompts.is_empty() {
            // An empty list is a prompt without tokens, which is refused as such.
            prompts.push(Prompt::Ids(ids));
        }
        Ok(Prompts(prompts))
    }
}

impl<'a> Deserialize<'a> for Prompts {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Prompts, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

struct ElementVisitor;

impl<'a> Visitor<'a> for ElementVisitor {
    type Value = PromptElement;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a token id or a list of token ids")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<PromptElement, E> {
        let id = u32::try_from(id).map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &"a token id"))?;
        Ok(PromptElement::Id(id))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PromptElement, E> {
        Ok(PromptElement::Prompt(Prompt::Text(text.into())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, items: A) -> Result<PromptElement, A::Error> {
        let ids = Vec::deserialize(SeqAccessDeserializer::new(items))?;
        Ok(PromptElement::Prompt(Prompt::Ids(ids)))
    }
}

impl<'a> Deserialize<'a> for PromptElement {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<PromptElement, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}
