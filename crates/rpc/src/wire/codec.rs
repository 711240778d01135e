//! Messages from bytes, whoever sent them, and to bytes.

use super::{AgentToHub, AgentWord, HubToAgent, HubWord, ToAgent, ToClient, message, scan, shapes};
use bytes::Bytes;
use prost::Message;
use tapml_graph::{Error, Result};

/// Reads a message of a client. Bytes from anywhere are safe to give: nothing is allocated beyond a small multiple of
/// their number.
///
/// # Errors
/// `InvalidInput` for bytes that are no message, claim too much, or hold values beyond their bounds.
pub fn decode_request(bytes: Bytes) -> Result<ToAgent> {
    // prost allocates as it reads, so that the look comes first.
    scan::scan(&bytes, &shapes::TO_AGENT)?;
    let message = ToAgent::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    message::check_request(&message)?;
    Ok(message)
}

/// Reads a message of an agent; safe as [`decode_request`].
pub fn decode_reply(bytes: Bytes) -> Result<ToClient> {
    scan::scan(&bytes, &shapes::TO_CLIENT)?;
    let message = ToClient::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    message::check_reply(&message)?;
    Ok(message)
}

/// Reads what a session's own process says first, before the agent has added its limits.
/// Its values are not checked: they come from a process of the agent itself, and limits are still missing.
pub(crate) fn decode_welcome(bytes: Bytes) -> Result<ToClient> {
    scan::scan(&bytes, &shapes::TO_CLIENT)?;
    ToClient::decode(bytes).map_err(|e| Error::bug(format!("no message of TapML: {e}")))
}

/// Reads a message of an agent that has dialled a hub; safe as [`decode_request`].
pub fn decode_agent_word(bytes: Bytes) -> Result<AgentWord> {
    scan::scan(&bytes, &shapes::AGENT_TO_HUB)?;
    let message =
        AgentToHub::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    let word = message.word.ok_or_else(|| Error::invalid("the message says nothing"))?;
    message::check_agent_word(&word)?;
    Ok(word)
}

/// Reads a message of a hub; safe as [`decode_request`].
pub fn decode_hub_word(bytes: Bytes) -> Result<HubWord> {
    scan::scan(&bytes, &shapes::HUB_TO_AGENT)?;
    let message =
        HubToAgent::decode(bytes).map_err(|e| Error::invalid(format!("no message of TapML: {e}")))?;
    message.word.ok_or_else(|| Error::invalid("the message says nothing"))
}

/// The bytes of a message.
pub fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
