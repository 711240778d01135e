//! What hubs and fleets on several hosts share, kept by an engine that exists: NATS with JetStream.
//!
//! [`Client`] stands on the crate `async-nats`, for threads that wait: publish, request, subscribe, and dialling again.
//! [`Bucket`] is a key-value bucket that is mirrored here, [`Queue`] a work queue whose messages come until they are
//! acknowledged.
//!
//! A broker is trusted with results, not with correctness: every message is checked before it is believed,
//! sizes are bounded, and whatever is lost is written or asked again by its owner.
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
///
/// 32 hexadecimal digits of BLAKE3: names hold signs that subjects must not, and may be long.
pub fn key(name: &str) -> String {
    blake3::hash(name.as_bytes()).to_hex()[..32].to_string()
}
