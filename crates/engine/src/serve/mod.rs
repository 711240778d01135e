//! Serving: many requests at once on one model, in steps that hold rows of several sequences.
//!
//! The engine's thread ([`Engine`]) runs steps that the scheduler plans over pages that the pool gives. Scheduler and pool know
//! neither threads nor the model; the tokens are chosen from logits, request by request.

mod active;
mod batch;
mod choose;
mod draft;
mod draft_model;
mod engine;
mod images;
mod inbox;
mod options;
mod paged;
mod pages;
mod recovery;
mod request;
mod scheduler;
mod state_slots;
mod thread;

pub use batch::{
    Batch, BatchLimits, BatchRunner, LogitDetail, NO_SLOT, PartSums, SequenceRows, StepLogits, TopRows,
    WantedLogits,
};
pub use draft::NgramOptions;
pub use draft_model::{DraftModel, ReplaceGuess};
pub use engine::{Engine, RequestHandle};
pub use images::{ImageLimits, PlacedImage, SharedImage};
pub use options::{EngineOptions, EngineStats, SubmitError};
pub use paged::PagedRunner;
pub use request::{
    Candidate, PromptToken, Request, RequestEvent, RequestOptions, SampledToken, TokenMask, Usage,
};
