//! The model that is served, and what of it requests are checked with.

use crate::error::ApiError;
use crate::fields::Parsed;
use crate::request::{ChatInput, Prompt};
use axum::http::StatusCode;
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;
use tapml_engine::{Chat, ChatTemplate, EmbeddingModel, Engine, PlacedImage, Tokenizer, Vision, VisionError};

/// A model with its engine.
pub struct ServedModel {
    /// What clients may call it; the first name is told.
    pub names: Vec<String>,
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// In place of the checkpoint's own.
    pub template: Option<ChatTemplate>,
    /// Tokens that end an answer.
    pub stop_ids: Vec<u32>,
    /// Whether a last message of the assistant is gone on with, also where the request does not say so.
    pub prefill: bool,
    /// What makes pixels and tokens of images; `None` if the model takes none.
    pub vision: Option<Vision>,
    /// What runs it.
    pub kind: ServedKind,
    /// The live calls that are checked beside the service, if any are.
    pub shadow: Option<ServedShadow>,
}

/// The tokens of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTokens {
    /// All of them.
    pub ids: Vec<u32>,
    /// Images that some of them stand for.
    pub images: Vec<PlacedImage>,
}

/// What a model makes of texts.
pub enum ServedKind {
    /// Texts that go on.
    Generator(Engine),
    /// Vectors.
    Encoder(EmbeddingModel),
}

/// Live calls that are checked beside the service.
pub struct ServedShadow {
    /// The platform that checks them.
    pub source: String,
    /// The expected share of calls.
    pub share: f64,
    /// The folder for suites of calls that fail.
    pub cases: PathBuf,
    /// What was found so far.
    pub stats: Box<dyn Fn() -> ShadowStats + Send + Sync>,
}

/// What was found of live calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowStats {
    /// Calls with a verdict.
    pub calls: u64,
    /// Calls that found no room to wait for theirs.
    pub dropped: u64,
    /// Calls that could not be checked.
    pub skipped: u64,
    /// Failing calls that left no suite.
    pub unwritten: u64,
    /// Failing calls.
    pub failures: Vec<ShadowFailures>,
}

/// Failing calls of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowFailures {
    /// The operator.
    pub op: String,
    /// The kernel that ran it.
    pub kernel: String,
    /// How many calls failed.
    pub calls: u64,
}

impl ServedModel {
    /// The name that is told.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Most tokens of a prompt and its answer, or of a text of an encoder.
    pub fn context(&self) -> usize {
        match &self.kind {
            ServedKind::Generator(engine) => engine.limits().context,
            ServedKind::Encoder(encoder) => encoder.limits().context,
        }
    }

    /// Ids lie below this.
    pub fn vocab(&self) -> usize {
        match &self.kind {
            ServedKind::Generator(engine) => engine.limits().vocab,
            ServedKind::Encoder(encoder) => encoder.limits().vocab,
        }
    }

    /// What generates text. Fails if the model is an encoder.
    pub fn engine(&self) -> Parsed<&Engine> {
        match &self.kind {
            ServedKind::Generator(engine) => Ok(engine),
            ServedKind::Encoder(_) => {
                let text = format!(
                    "the model `{}` is an encoder: it gives vectors of texts and generates none; use /v1/embeddings",
                    self.name()
                );
                Err(ApiError::bad_request(text).with_param("model").with_code("unsupported_model"))
            }
        }
    }

    /// What gives vectors. Fails if the model generates text.
    pub fn encoder(&self) -> Parsed<&EmbeddingModel> {
        match &self.kind {
            ServedKind::Encoder(encoder) => Ok(encoder),
            ServedKind::Generator(_) => {
                let text = format!(
                    "the model `{}` is a language model: it generates text and gives no embeddings; serve an encoder, such as \
                     BERT, for them",
                    self.name()
                );
                Err(ApiError::bad_request(text).with_param("model").with_code("unsupported_model"))
            }
        }
    }

    /// Lets no work begin any more, and waits for what runs.
    pub fn shut_down(&self) {
        match &self.kind {
            ServedKind::Generator(engine) => engine.shut_down(Duration::ZERO),
            ServedKind::Encoder(encoder) => encoder.close(),
        }
    }

    /// Fails if another model is asked for.
    pub fn expect_name(&self, asked: Option<&str>) -> Parsed<()> {
        match asked {
            Some(name) if !self.names.iter().any(|own| own == name) => {
                let text = format!(
                    "the model `{name}` is not served here; `GET /v1/models` tells the name of the one that is"
                );
                Err(ApiError::new(StatusCode::NOT_FOUND, text)
                    .with_param("model")
                    .with_code("model_not_found"))
            }
            _ => Ok(()),
        }
    }

    /// The tokens of a prompt, of which the context holds all.
    pub fn encode(&self, prompt: &Prompt) -> Parsed<Vec<u32>> {
        self.engine()?;
        let ids = match prompt {
            Prompt::Text(text) => {
                self.tokenizer.encode(text).map_err(|e| ApiError::from(e).with_param("prompt"))?
            }
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Parts(parts) => self.encode_parts(parts)?,
        };
        self.check_prompt("prompt", &ids)?;
        Ok(ids)
    }

    /// The tokens of parts that follow one another.
    pub fn encode_parts(&self, parts: &[Prompt]) -> Parsed<Vec<u32>> {
        let mut all = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            match part {
                Prompt::Text(text) if i == 0 => all.extend(self.tokenizer.encode(text)?),
                Prompt::Text(text) => all.extend(self.tokenizer.encode_plain(text)?),
                Prompt::Ids(ids) => all.extend(ids),
                Prompt::Parts(parts) => all.extend(self.encode_parts(parts)?),
            }
        }
        Ok(all)
    }

    /// The source of the template; empty if there is none.
    pub fn template_source(&self) -> &str {
        self.template.as_ref().or(self.tokenizer.chat_template()).map_or("", ChatTemplate::source)
    }

    /// The text of a chat.
    pub fn render(&self, input: &ChatInput) -> Parsed<String> {
        self.engine()?;
        let Some(template) = self.template.as_ref().or(self.tokenizer.chat_template()) else {
            let text = "the model has no chat template; start the server with `--chat-template FILE`, or use /v1/completions";
            return Err(ApiError::unsupported_field("messages", text));
        };
        let chat = match &self.vision {
            None if input.images.is_empty() => Cow::Borrowed(&input.chat),
            None => {
                let name = self.name();
                let text = format!(
                    "the model `{name}` takes no images; send text alone, or serve a model that sees"
                );
                return Err(ApiError::unsupported_field("messages", text));
            }
            Some(vision) => {
                Cow::Owned(vision.prepare_chat(&input.chat, &self.tokenizer, template.takes_parts())?)
            }
        };
        let chat = chat.as_ref();
        let chat = &*self.with_prefill(chat)?;
        let render =
            |chat: &Chat| template.render(chat).map_err(|e| ApiError::from(e).with_param("messages"));
        let text = render(chat)?;
        if chat.tools.is_some() && render(&Chat { tools: None, ..chat.clone() })? == text {
            let text = "the model's chat template takes no functions; describe them in a message";
            return Err(ApiError::unsupported_field("tools", text));
        }
        Ok(text)
    }

    /// The chat, whose last message is gone on with if that is wanted.
    fn with_prefill<'a>(&self, chat: &'a Chat) -> Parsed<Cow<'a, Chat>> {
        let mut last = chat.messages.iter().rev().map(|message| message["role"] == "assistant");
        if !self.prefill || chat.continue_final_message || last.next() != Some(true) {
            return Ok(Cow::Borrowed(chat));
        }
        if last.next() == Some(true) {
            let text =
                "the last two messages are of the assistant; join them, so that one can be gone on with";
            return Err(ApiError::bad_field("messages", text).with_code("invalid_value"));
        }
        Ok(Cow::Owned(Chat { continue_final_message: true, add_generation_prompt: false, ..chat.clone() }))
    }

    /// The tokens of a chat, of which the context holds all.
    pub fn encode_chat(&self, input: &ChatInput) -> Parsed<ChatTokens> {
        let tokens = self.chat_tokens(input, self.context())?;
        self.check_prompt("messages", &tokens.ids)?;
        Ok(tokens)
    }

    /// The tokens of a chat, those of its images among them. With images, fails if there are more than `most`.
    pub fn chat_tokens(&self, input: &ChatInput, most: usize) -> Parsed<ChatTokens> {
        let text = self.render(input)?;
        let wrong = |error| ApiError::from(error).with_param("messages");
        let Some(vision) = &self.vision else {
            let ids = self.tokenizer.encode_plain(&text).map_err(wrong)?;
            return Ok(ChatTokens { ids, images: Vec::new() });
        };
        let ids = vision.encode_chat(&self.tokenizer, &text, input.images.len()).map_err(wrong)?;
        match vision.place_images(&ids, &input.images, most) {
            Ok((ids, images)) => Ok(ChatTokens { ids, images }),
            Err(VisionError::TooLong(tokens)) => Err(ApiError::context_error("messages", tokens, most)),
            Err(VisionError::Other(error)) => Err(wrong(error)),
        }
    }

    /// Fails if there is none, one that the model does not have, or one too many.
    pub fn check_prompt(&self, param: &str, ids: &[u32]) -> Parsed<()> {
        let context = self.context();
        if ids.is_empty() {
            return Err(ApiError::bad_field(param, format!("`{param}` has no tokens; give at least one")));
        }
        if ids.len() > context {
            return Err(ApiError::context_error(param, ids.len(), context));
        }
        check_ids(param, ids, self.vocab())
    }
}

/// Fails if the model does not have one of these tokens.
pub fn check_ids(param: &str, ids: &[u32], vocab: usize) -> Parsed<()> {
    match ids.iter().find(|id| usize::try_from(**id).is_ok_and(|id| id >= vocab)) {
        None => Ok(()),
        Some(id) => {
            let text = format!(
                "`{param}` has the token {id}; the model has the tokens 0 to {}",
                vocab.saturating_sub(1)
            );
            Err(ApiError::bad_field(param, text).with_code("invalid_value"))
        }
    }
}
