//! The messages between a hub and an agent that has dialled it, as `proto/tapml.proto` declares and explains them; a test
//! holds both together.
#![allow(missing_docs, reason = "fields are explained in the schema")]

use super::session::{Failed, Offer};

/// From an agent to its hub.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AgentToHub {
    #[prost(oneof = "AgentWord", tags = "1, 2, 3")]
    pub word: Option<AgentWord>,
}

/// What an [`AgentToHub`] holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum AgentWord {
    #[prost(message, tag = "1")]
    Register(Register),
    #[prost(message, tag = "2")]
    Heartbeat(Heartbeat),
    #[prost(message, tag = "3")]
    Refused(Refused),
}

/// From a hub to an agent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HubToAgent {
    #[prost(oneof = "HubWord", tags = "1, 2, 3, 4, 5")]
    pub word: Option<HubWord>,
}

/// What a [`HubToAgent`] holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum HubWord {
    #[prost(message, tag = "1")]
    Registered(Registered),
    #[prost(message, tag = "2")]
    Open(Open),
    #[prost(message, tag = "3")]
    Close(Close),
    #[prost(message, tag = "4")]
    Heartbeat(Heartbeat),
    #[prost(message, tag = "5")]
    Failed(Failed),
}

/// Offers an agent's devices.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Register {
    #[prost(uint32, tag = "1")]
    pub version_min: u32,
    #[prost(uint32, tag = "2")]
    pub version_max: u32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub token: String,
    #[prost(string, tag = "5")]
    pub agent: String,
    #[prost(string, tag = "6")]
    pub instance: String,
    #[prost(message, repeated, tag = "7")]
    pub devices: Vec<Offer>,
    #[prost(string, repeated, tag = "8")]
    pub capabilities: Vec<String>,
    #[prost(uint32, tag = "9")]
    pub sessions: u32,
}

/// The agent is known.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Registered {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, tag = "2")]
    pub version: u32,
}

/// Is the other side there?
#[derive(Clone, PartialEq, prost::Message)]
pub struct Heartbeat {}

/// A client has leased a device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Open {
    #[prost(string, tag = "1")]
    pub session: String,
    #[prost(string, tag = "2")]
    pub target: String,
}

/// The session that was to be opened is not wanted any more.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Close {
    #[prost(string, tag = "1")]
    pub session: String,
}

/// The agent does not open this session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refused {
    #[prost(string, tag = "1")]
    pub session: String,
    #[prost(string, tag = "2")]
    pub reason: String,
    #[prost(bool, tag = "3")]
    pub busy: bool,
}
