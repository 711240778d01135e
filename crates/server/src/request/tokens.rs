//! The bodies of `/tokenize`, `/detokenize` and `/apply-template`.

use super::chat::{self, ChatInput, TEMPLATE_NAMES};
use crate::error::ApiError;
use crate::fields::{Fields, Parsed};

const TOKENIZE: &[&str] =
    &["model", "prompt", "content", "add_special_tokens", "add_special", "with_pieces", "return_token_strs"];
const DETOKENIZE: &[&str] = &["model", "tokens"];

/// What is to be cut into tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizeText {
    /// A text, perhaps with the special tokens that the model puts around it.
    Text {
        /// The text.
        text: String,
        /// Whether special tokens are put around it.
        special: bool,
    },
    /// A chat, which the template turns into a text.
    Chat(ChatInput),
}

/// Asks for the tokens of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizeRequest {
    /// The model's name, if it is given.
    pub model: Option<String>,
    /// The text.
    pub text: TokenizeText,
    /// Whether each token is told with its text.
    pub pieces: bool,
    /// Whether the texts of tokens are told in a list of their own.
    pub strings: bool,
}

impl TokenizeRequest {
    /// Reads a body: `prompt` or `messages` as vLLM has them, or `content` as llama-server has it.
    pub fn parse(body: &[u8]) -> Parsed<TokenizeRequest> {
        let fields = Fields::parse(body, &[TOKENIZE, TEMPLATE_NAMES])?;
        let special = |name, default| Ok::<bool, ApiError>(fields.optional(name)?.unwrap_or(default));
        let prompt: Option<String> = fields.optional("prompt")?;
        let text = match (prompt, fields.raw("content")) {
            (Some(text), _) => TokenizeText::Text { text, special: special("add_special_tokens", true)? },
            (None, Some(_)) => TokenizeText::Text {
                text: fields.expect_field("content")?,
                special: special("add_special", false)?,
            },
            (None, None) if fields.raw("messages").is_some() => {
                TokenizeText::Chat(chat::template_input(&fields)?.0)
            }
            (None, None) => {
                let text = "`prompt` is missing: give a text, or the `messages` of a chat";
                return Err(ApiError::bad_field("prompt", text).with_code("missing_required_parameter"));
            }
        };
        Ok(TokenizeRequest {
            model: fields.optional("model")?,
            text,
            pieces: fields.flag("with_pieces")?,
            strings: fields.flag("return_token_strs")?,
        })
    }
}

/// Asks for the text of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct DetokenizeRequest {
    /// The model's name, if it is given.
    pub model: Option<String>,
    /// The tokens.
    pub tokens: Vec<u32>,
}

impl DetokenizeRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Parsed<DetokenizeRequest> {
        let fields = Fields::parse(body, &[DETOKENIZE])?;
        Ok(DetokenizeRequest { model: fields.optional("model")?, tokens: fields.expect_field("tokens")? })
    }
}

/// Asks for the text of a chat.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateRequest {
    /// The model's name, if it is given.
    pub model: Option<String>,
    /// The chat.
    pub input: ChatInput,
}

impl TemplateRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Parsed<TemplateRequest> {
        let fields = Fields::parse(body, &[&["model"], TEMPLATE_NAMES])?;
        Ok(TemplateRequest { model: fields.optional("model")?, input: chat::template_input(&fields)?.0 })
    }
}
