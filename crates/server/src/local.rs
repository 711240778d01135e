//! Chats with a model in this process: requests have the fields of `/v1/chat/completions`, and no HTTP is spoken.
//!
//! Requests are read, made to tokens and answered by the code that serves clients. So a chat in a terminal says what a server says.

use crate::answer::AnswerPiece;
use crate::fields::Parsed;
use crate::generate::{AnswerEnd, Receiver, Submitted, Totals};
use crate::handler::{chat, finish_name, timings, usage};
use crate::options::ServerOptions;
use crate::request::{ChatRequest, data_url};
use crate::served::ServedModel;
use crate::state::ServerState;
use serde_json::{Value, json};
use std::time::Duration;
use tapml_engine::{EngineStats, Finish, Usage};
use tapml_graph::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Runtime};

/// How often it is looked whether an answer is to end.
const PAUSE: Duration = Duration::from_millis(10);

/// A model that answers chats of this process, one after the other.
pub struct LocalChat {
    state: ServerState,
    runtime: Runtime,
}

/// An answer of [`LocalChat`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAnswer {
    /// What was said.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Its tokens and times.
    pub usage: Usage,
}

impl LocalAnswer {
    /// Why it ended in OpenAI's words, and `cancelled`.
    pub fn finish_reason(&self) -> &'static str {
        if self.finish == Finish::Cancelled { "cancelled" } else { finish_name(self.finish) }
    }

    /// Its tokens as OpenAI tells them.
    pub fn usage_fields(&self) -> Value {
        let Usage { prompt_tokens, cached_tokens, new_tokens, .. } = self.usage;
        usage(&Totals { prompt_tokens, cached_tokens, new_tokens, ..Totals::default() })
    }

    /// Its tokens and times as llama-server tells them.
    pub fn timings(&self) -> Value {
        timings(&self.usage)
    }

    /// From the request to the first token.
    pub fn first_token(&self) -> Duration {
        self.usage.queued + self.usage.prefill
    }
}

impl LocalChat {
    /// Takes a model that generates text.
    ///
    /// # Errors
    /// If it is an encoder.
    pub fn new(model: ServedModel) -> Result<LocalChat> {
        model.engine()?;
        let runtime = Builder::new_current_thread().enable_time().build().map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("could not start the clock of a chat: {e}"))
        })?;
        Ok(LocalChat { state: ServerState::new(model, ServerOptions::default()), runtime })
    }

    /// Most tokens of a chat and its answer.
    pub fn context(&self) -> usize {
        self.state.model.context()
    }

    /// What its engine does and has done.
    ///
    /// # Errors
    /// None for a model that [`LocalChat::new`] has taken.
    pub fn stats(&self) -> Result<EngineStats> {
        Ok(self.state.model.engine()?.stats())
    }

    /// The part of a message that shows an image, given as a file of PNG, JPEG or WebP.
    ///
    /// # Errors
    /// If the model takes no images, or the file is none.
    pub fn image_part(&self, file: &[u8]) -> Result<Value> {
        let Some(vision) = &self.state.model.vision else {
            return Err(
                Error::unsupported("the model takes no images").with_hint("chat with a model that sees")
            );
        };
        vision.processor().bytes(file)?;
        Ok(json!({ "type": "image_url", "image_url": { "url": data_url(file) } }))
    }

    /// Reads a request without a look at the model.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn check(request: &Value) -> Result<()> {
        Ok(read(request).map(drop)?)
    }

    /// Tokens of the prompt that a request becomes, however many the context holds.
    ///
    /// # Errors
    /// If the request is wrong, or the chat template refuses its messages.
    pub fn count_tokens(&self, request: &Value) -> Result<usize> {
        Ok(self.state.model.chat_tokens(&read(request)?.input, usize::MAX)?.ids.len())
    }

    /// Answers a request; `on_text` is given the pieces of the answer as they are made, always of whole characters. When
    /// `is_stopped` says so, the answer ends after the step that runs, and its pages come back.
    ///
    /// # Errors
    /// If the request is wrong or does not fit the context, or the engine fails.
    pub fn answer(
        &self,
        request: &Value,
        is_stopped: &dyn Fn() -> bool,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<LocalAnswer> {
        let (mut plans, _) = chat::plans(&self.state, &read(request)?)?;
        plans.truncate(1);
        let submitted = Submitted::new(&self.state.model, plans)?;
        let mut receiver = LocalReceiver { text: String::new(), end: None, on_text };
        let stop = async {
            while !is_stopped() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let run = submitted.run_until(&self.state.model, &self.state.metrics, &mut receiver, stop);
        self.runtime.block_on(run)?;
        let LocalReceiver { text, end, .. } = receiver;
        let end = end.ok_or_else(|| Error::bug("an answer has no end"))?;
        Ok(LocalAnswer { text, finish: end.finish, usage: end.usage })
    }
}

fn read(request: &Value) -> Parsed<ChatRequest> {
    ChatRequest::parse(request.to_string().as_bytes())
}

/// Tells the pieces of one answer, and keeps all of it.
struct LocalReceiver<'a> {
    text: String,
    end: Option<AnswerEnd>,
    on_text: &'a mut dyn FnMut(&str),
}

impl Receiver for LocalReceiver<'_> {
    fn piece(&mut self, _answer: usize, piece: AnswerPiece) {
        if !piece.text.is_empty() {
            (self.on_text)(&piece.text);
            self.text.push_str(&piece.text);
        }
    }

    fn finish(&mut self, _answer: usize, end: AnswerEnd) {
        self.end = Some(end);
    }
}
