//! What answers requests, one file for each kind.

pub mod anthropic;
pub mod chat;
pub mod completion;
pub mod embedding;
pub mod responses;
pub mod status;
mod timings;
pub mod tokens;

mod answers;
mod choices;
mod logprobs;
pub mod native;

pub use choices::{finish_name, usage};
pub use timings::timings;
