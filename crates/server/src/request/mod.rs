//! What clients ask for: bodies read to types whose values are checked.

pub mod anthropic;
pub mod responses;

mod chat;
mod completion;
mod grammar;
mod messages;
mod native;
mod sampling;
mod tokens;
mod tools;
mod translation;

pub use chat::ChatRequest;
pub use completion::{CompletionRequest, Prompt};
pub use native::NativeRequest;
pub use sampling::{Common, StreamOptions};
pub use tokens::{DetokenizeRequest, TemplateRequest, TokenizeRequest, TokenizeText};

#[cfg(test)]
mod tests;
