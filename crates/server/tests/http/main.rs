//! The server over real sockets, on a model that computes its logits from the tokens in its pages.
#![allow(clippy::unwrap_used)]

mod anthropic;
mod chat;
mod client;
mod completions;
mod document;
mod embeddings;
mod fixture;
mod load;
mod native;
mod refusals;
mod responses;
mod streams;
mod structured;
mod tokens;
mod tools;
