//! What hubs and fleets on several hosts share, kept by an engine that exists: NATS with JetStream.
//!
//! [`Client`] stands on the crate `async-nats`, for threads that wait: publish, request, subscribe, and dialling again.
//! [`Bucket`] is a key-value bucket that is mirrored here, [`Queue`] a work queue whose messages come until they are
//! acknowledged.
#![warn(missing_docs)]

mod address;
mod bucket;
mod client;
mod connection;
mod queue;
mod table;

pub use bucket::{Bucket, BucketEntry};
pub use client::{Client, Subscription};
pub use queue::{Delivery, Queue};
pub use table::HubTable;

/// A name for anything as a key that NATS takes.
pub fn key(name: &str) -> String {
    blake3::hash(name.as_bytes()).to_hex()[..32].to_string()
}
