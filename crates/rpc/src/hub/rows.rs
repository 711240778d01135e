//! The rows of the table that the hubs of several hosts share.

use crate::wire::Register;

/// An agent, at the hub that it has dialled.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AgentRow {
    /// The hub.
    #[prost(string, tag = "1")]
    pub hub: String,
    /// Where other hubs reach it.
    #[prost(string, tag = "2")]
    pub url: String,
    /// What it has registered.
    #[prost(message, optional, tag = "3")]
    pub register: Option<Register>,
}

/// A device that a client has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseRow {
    /// The client's hub.
    #[prost(string, tag = "1")]
    pub hub: String,
    /// The client.
    #[prost(uint64, tag = "2")]
    pub waiter: u64,
    /// The device's agent.
    #[prost(string, tag = "3")]
    pub agent: String,
    /// The device.
    #[prost(string, tag = "4")]
    pub device: String,
}

/// A client that waits.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WaitRow {
    /// Its hub.
    #[prost(string, tag = "1")]
    pub hub: String,
    /// The client.
    #[prost(uint64, tag = "2")]
    pub waiter: u64,
    /// What it asks for.
    #[prost(string, tag = "3")]
    pub target: String,
    /// Its priority.
    #[prost(int32, tag = "4")]
    pub priority: i32,
    /// When it came, milliseconds since 1970.
    #[prost(uint64, tag = "5")]
    pub since: u64,
}

/// The rows of other hubs.
#[derive(Default)]
pub struct Rows {
    /// Their agents.
    pub agents: Vec<AgentRow>,
    /// Their clients' leases.
    pub leases: Vec<LeaseRow>,
    /// Who waits there.
    pub waiting: Vec<WaitRow>,
}
