//! What clients ask for: bodies read to types whose values are checked.

pub mod anthropic;
pub mod responses;

mod chat;
mod completion;
mod embedding;
mod grammar;
mod images;
mod messages;
mod native;
mod prompts;
mod sampling;
mod tokens;
mod tools;
mod translation;

pub use chat::{ChatInput, ChatRequest};
pub use completion::CompletionRequest;
pub use embedding::{EmbeddingRequest, VectorFormat};
pub use images::data_url;
pub use native::NativeRequest;
pub use prompts::Prompt;
pub use sampling::{Common, StreamOptions};
pub use tokens::{DetokenizeRequest, TemplateRequest, TokenizeRequest, TokenizeText};

#[cfg(test)]
mod tests;
