//! The wire: messages, their bounds, their bytes, and what they mean in terms of [`tapml_device`].
//!
//! The schema is `crates/rpc/proto/tapml.proto`; structs, shapes and macros are generated from it. Every message from
//! outside goes through three steps: `scan` bounds what decoding allocates, prost decodes, and the message checks its
//! own values.

// The messages, and the shapes and macros that belong to them.
include!("gen/messages.rs");

mod codec;
pub mod convert;
pub mod limits;
mod message;
mod scan;

pub use agent_to_hub::Word as AgentWord;
pub(crate) use codec::decode_welcome;
pub use codec::{decode_agent_word, decode_hub_word, decode_reply, decode_request, encode};
pub use command::Work;
pub use hub_to_agent::Word as HubWord;
pub(crate) use message::{Answered, MEMBERS, Names, Note};
pub use to_agent::Request;
pub use to_client::Reply;
