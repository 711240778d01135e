//! Serving: many requests at once on one model, in steps that hold rows of several sequences.

mod batch;
mod request;

pub use batch::{Batch, BatchLimits, BatchRunner, SequenceRows, WantedLogits};
pub use request::{
    Candidate, PromptToken, Request, RequestEvent, RequestOptions, SampledToken, TokenMask, Usage,
};
