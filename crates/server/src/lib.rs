//! The HTTP server: the APIs of OpenAI and Anthropic over a model that the engine runs.
//!
//! What comes from clients is hostile here: heads, bodies, their nesting, prompts, answers, waiting requests and times are
//! bounded. tokio lives in this crate alone; the engine is a thread that is told requests and tells events. Tokens become text on
//! this side, and texts that end an answer are looked for here.
#![warn(missing_docs)]

mod answer;
mod body;
mod connection;
mod error;
mod fields;
mod generate;
mod handler;
mod load;
mod local;
mod metrics;
mod options;
mod request;
mod routes;
mod served;
mod server;
mod sse;
mod state;
mod tool_calls;
mod tool_grammar;

pub use load::{LoadLengths, LoadOptions, LoadReport, LoadTimes, measure_load};
pub use local::{LocalAnswer, LocalChat};
pub use options::{ApiKeys, ServerOptions};
pub use served::{ServedKind, ServedModel, ServedShadow, ShadowFailures, ShadowStats};
pub use server::{HttpServer, ServerStopper};
