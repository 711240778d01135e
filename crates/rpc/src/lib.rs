//! A device that is elsewhere, as if it were here: the wire's schema, a client that is a [`tapml_device::Device`], and the
//! agent that offers a machine's devices; a hub where agents dial in that cannot be dialled.
//!
//! The contract is `proto/tapml.proto`: Protocol Buffers in binary WebSocket messages, over TCP or TLS. An agent runs
//! every session in a process of its own, so that a crash, a hang or a lack of memory ends that session alone, with a
//! [`wire::PostMortem`] for the client, and the agent serves on.
#![warn(missing_docs)]

pub mod agent;
pub mod client;
pub mod conformance;
mod executor;
pub mod hub;
mod net;
mod offer;
mod pipe;
mod recorder;
pub mod secret;
pub mod tls;
pub mod wire;

pub use client::{Address, Remote, RemoteDevice, RemoteOperators, RemoteProgram};
pub use offer::{Offer, Offered};
