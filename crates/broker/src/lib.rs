//! What hubs and fleets on several hosts share, kept by an engine that exists: NATS with JetStream.
//!
//! [`Client`] speaks as much of NATS' text protocol as is needed: publish, request, subscribe, headers, and dialling again.
//! [`Bucket`] is a key-value bucket that is mirrored here, [`Queue`] a work queue whose messages come until they are
//! acknowledged.
#![warn(missing_docs)]

mod bucket;
mod client;
mod protocol;
mod queue;
mod table;

pub use bucket::{Bucket, BucketEntry};
pub use client::{Client, Message};
pub use queue::{Delivery, Queue};
pub use table::HubTable;

/// A name for anything as a key that NATS takes.
pub fn key(name: &str) -> String {
    blake3::hash(name.as_bytes()).to_hex()[..32].to_string()
}
