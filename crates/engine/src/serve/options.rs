//! How an engine works, what it counts, and why it takes no request.

use super::draft::NgramOptions;
use std::fmt;
use std::time::Duration;
use tapml_graph::{Error, Result};

/// How an engine works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// At most this many requests wait; more are refused.
    pub queue: usize,
    /// At most this many rows of prompts in one step: fewer let running requests go on faster while prompts come in. As many
    /// as the runner takes if `None`.
    pub prompt_rows: Option<usize>,
    /// Whether full pages are kept for requests that begin with the same tokens.
    pub prefix_cache: bool,
    /// A request fails that was in more than this many failed steps.
    pub retries: usize,
    /// Speculative decoding with n-grams, if wanted. Texts are the same with and without.
    pub ngram: Option<NgramOptions>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { queue: 1024, prompt_rows: None, prefix_cache: true, retries: 8, ngram: None }
    }
}

impl EngineOptions {
    /// Fails if a size is 0.
    pub fn check(&self) -> Result<()> {
        let bad = |name: &str| Err(Error::invalid(format!("`{name}` must be at least 1, found 0")));
        match self {
            EngineOptions { queue: 0, .. } => bad("queue"),
            EngineOptions { prompt_rows: Some(0), .. } => bad("prompt_rows"),
            EngineOptions { ngram: Some(NgramOptions { tokens: 0, .. }), .. } => bad("ngram"),
            _ => Ok(()),
        }
    }
}

/// What an engine does and has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests that are being computed.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Pages that hold tokens of running requests.
    pub pages_used: usize,
    /// Pages in all.
    pub pages: usize,
    /// Tokens that were looked for in the prefix cache.
    pub prefix_queries: u64,
    /// Of these, tokens that were found.
    pub prefix_hits: u64,
    /// How often a running request gave its pages up for another one.
    pub preemptions: u64,
    /// Tokens of the prompts of all requests that ran.
    pub prompt_tokens: u64,
    /// New tokens.
    pub generated_tokens: u64,
    /// Tokens that were guessed.
    pub draft_tokens: u64,
    /// Of these, tokens that were right.
    pub accepted_tokens: u64,
    /// Of the guessed tokens, those that were compared with the model's choice: behind a wrong one the others are not.
    pub compared_tokens: u64,
    /// Steps that succeeded.
    pub steps: u64,
    /// Their rows.
    pub rows: u64,
    /// The time that they took, the choice of tokens included.
    pub step_time: Duration,
    /// Bytes that the host took of logits: what steps gave, and what was read behind them.
    pub logit_bytes: u64,
    /// Steps that failed.
    pub failed_steps: u64,
    /// How often a device that was lost was opened again.
    pub device_reopened: u64,
    /// Requests that were taken.
    pub submitted: u64,
    /// Requests that ended as they should.
    pub finished: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// For how long the step that runs now has been running.
    pub current_step: Option<Duration>,
}

/// Why a request was not taken.
#[derive(Clone, Debug)]
pub enum SubmitError {
    /// The request is wrong, and always will be: HTTP status 400.
    Invalid(Error),
    /// Too many requests wait; the same request may be taken later: HTTP status 429.
    QueueFull(Error),
    /// The engine takes no requests any more: HTTP status 503.
    ShuttingDown(Error),
}

impl SubmitError {
    /// The reason in words.
    pub fn error(&self) -> &Error {
        match self {
            SubmitError::Invalid(error)
            | SubmitError::QueueFull(error)
            | SubmitError::ShuttingDown(error) => error,
        }
    }
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl std::error::Error for SubmitError {}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Error {
        match error {
            SubmitError::Invalid(error)
            | SubmitError::QueueFull(error)
            | SubmitError::ShuttingDown(error) => error,
        }
    }
}
