//! The wire: messages, their bounds, their bytes, and what they mean in terms of [`tapml_device`].

mod check;
mod commands;
pub mod convert;
mod hub;
pub mod limits;
mod nodes;
mod scan;
mod session;

pub use commands::{
    AdapterKind, Binding, BindingKind, Command, Constant, Copy, CreateBuffer, CreateKernel, DestroyBuffer,
    DestroyKernel, DestroyList, DeviceInfo, Dispatch, Feature, Fill, Finding, Findings, HasBlobs, HeldBlobs,
    Input, Language, Limits, LoadProgram, PutBlob, Read, Record, Replay, RunProgram, Size, Step, Symbol,
    TakeFindings, Term, Turn, Turns, UnloadProgram, Wait, Weight, Work, Write, WriteBlob,
};
pub use hub::{
    AgentToHub, AgentWord, Close, Heartbeat, HubToAgent, HubWord, Open, Refused, Register, Registered,
};
pub use nodes::{CallGraph, CallNode, DropTensor, GraphNode, NodeResult, PutTensor, ServedOp, Tensor};
pub use session::{
    Cancel, Credit, Data, Detail, Done, ErrorKind, Failed, Hello, KernelRef, Leased, Offer, Ping, Pong,
    PostMortem, Queued, Reason, Reply, Request, SessionLimits, ToAgent, ToClient, Welcome,
};

use bytes::Bytes;
use prost::Message;
use tapml_graph::{Error, Result};

/// Reads a message of a client. Bytes from anywhere are safe to give: nothing is allocated beyond a small multiple of
/// their number.
pub fn decode_request(bytes: Bytes) -> Result<ToAgent> {
    scan::scan(&bytes, &scan::TO_AGENT)?;
    let message = ToAgent::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    check::request(&message)?;
    Ok(message)
}

/// Reads a message of an agent; safe as [`decode_request`].
pub fn decode_reply(bytes: Bytes) -> Result<ToClient> {
    scan::scan(&bytes, &scan::TO_CLIENT)?;
    let message = ToClient::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    check::reply(&message)?;
    Ok(message)
}

/// Reads what a session's own process says first, before the agent has added its limits.
pub(crate) fn decode_welcome(bytes: Bytes) -> Result<ToClient> {
    scan::scan(&bytes, &scan::TO_CLIENT)?;
    ToClient::decode(bytes).map_err(|e| Error::bug(format!("no message of TapML: {e}")))
}

/// Reads a message of an agent that has dialled a hub; safe as [`decode_request`].
pub fn decode_agent_word(bytes: Bytes) -> Result<AgentWord> {
    scan::scan(&bytes, &scan::AGENT_TO_HUB)?;
    let message =
        AgentToHub::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    let word = message.word.ok_or_else(|| Error::invalid("the message says nothing"))?;
    check::agent_word(&word)?;
    Ok(word)
}

/// Reads a message of a hub; safe as [`decode_request`].
pub fn decode_hub_word(bytes: Bytes) -> Result<HubWord> {
    scan::scan(&bytes, &scan::HUB_TO_AGENT)?;
    let message =
        HubToAgent::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    message.word.ok_or_else(|| Error::invalid("the message says nothing"))
}

/// The bytes of a message.
pub fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
