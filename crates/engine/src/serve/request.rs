//! What the engine is asked for, and what it answers.

use super::images::PlacedImage;
use crate::generate::Finish;
use crate::sampler::Sampling;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;
use tapml_constraint::GrammarMask;
use tapml_graph::{Error, Result};

/// Restricts the next token, such as to what a grammar allows.
pub trait TokenMask: Send {
    /// Sets the bit of each allowed token: token `i` is bit `i % 32` of word `i / 32`. `words` are zeros at first. Fails
    /// if no token is allowed.
    fn fill(&mut self, words: &mut [u32]) -> Result<()>;

    /// Takes the token that was chosen. `Break` if the text is complete and must end with it.
    fn accept(&mut self, id: u32) -> Result<ControlFlow<()>>;
}

impl TokenMask for GrammarMask {
    fn fill(&mut self, words: &mut [u32]) -> Result<()> {
        GrammarMask::fill(self, words)
    }

    fn accept(&mut self, id: u32) -> Result<ControlFlow<()>> {
        GrammarMask::accept(self, id)
    }
}

/// How a request wants its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOptions {
    /// At most this many new tokens. 0 computes the prompt alone.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Generation ends with any of these tokens.
    pub stop_ids: Vec<u32>,
    /// Before this many new tokens none of `stop_ids` is chosen.
    pub min_tokens: usize,
    /// For each new token, this many of the most likely ones are told, beside its own log probability.
    pub logprobs: Option<usize>,
    /// Likewise for each token of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// Requests of different salts share no pages of the prefix cache, so that none can tell from its times what another one
    /// has asked. vLLM's.
    pub cache_salt: Option<String>,
}

impl Default for RequestOptions {
    fn default() -> RequestOptions {
        RequestOptions {
            max_tokens: 128,
            sampling: Sampling::default(),
            stop_ids: Vec::new(),
            min_tokens: 0,
            logprobs: None,
            prompt_logprobs: None,
            cache_salt: None,
        }
    }
}

/// A prompt to be continued.
pub struct Request {
    /// The prompt's tokens, at least one.
    pub prompt: Vec<u32>,
    /// Images that tokens of the prompt stand for, in order, of a model that sees.
    pub images: Vec<PlacedImage>,
    /// How it is continued.
    pub options: RequestOptions,
    /// Restricts the tokens, if given.
    pub mask: Option<Box<dyn TokenMask>>,
    /// Takes the answer's events, on the engine's thread: it must be quick and must not wait. `Break` cancels the request,
    /// and nothing more is told.
    pub events: Box<dyn FnMut(RequestEvent) -> ControlFlow<()> + Send>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { prompt, images, options, mask, .. } = self;
        let (tokens, images) = (prompt.len(), images.len());
        write!(f, "Request({tokens} tokens, {images} images, {options:?}, masked: {})", mask.is_some())
    }
}

/// A token with its log probability, natural logarithm, before any sampling option but the logit bias took effect. Where a device adds
/// rows up, which it does in `f32`, the logarithm of the sum is right to 3.4·10⁻⁶.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: u32,
    /// Its log probability.
    pub logprob: f32,
}

/// A token that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    /// The token.
    pub id: u32,
    /// Its log probability, if `logprobs` were asked for.
    pub logprob: Option<f32>,
    /// The most likely tokens, the most likely first.
    pub top: Vec<Candidate>,
}

/// A token of the prompt. The first one has no log probability.
pub type PromptToken = SampledToken;

/// Tokens and times of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens whose pages were there already.
    pub cached_tokens: usize,
    /// New tokens.
    pub new_tokens: usize,
    /// From the request's arrival to its first step.
    pub queued: Duration,
    /// From the first step to the first new token.
    pub prefill: Duration,
    /// From the first new token to the last one.
    pub decode: Duration,
}

/// What is told of a request. The last event is [`RequestEvent::Finished`] or [`RequestEvent::Failed`].
#[derive(Debug)]
pub enum RequestEvent {
    /// The tokens of the prompt, if `prompt_logprobs` were asked for; told once, before any new token.
    Prompt(Vec<PromptToken>),
    /// One new token, a stop token included.
    Token(SampledToken),
    /// The end.
    Finished(Finish, Usage),
    /// The request cannot go on.
    Failed(Error),
}
