//! Bounds of the wire. A decoder refuses what exceeds them before it allocates for it.
//!
//! Bounds of single values are checked by the messages themselves, and bounds of allocation by `scan`.

use std::time::Duration;
use tapml_graph::Error;

/// The version of the schema that this build speaks.
pub const VERSION: u32 = 1;

/// The WebSocket subprotocol of this schema.
pub const PROTOCOL: &str = "tapml.v1";

/// The WebSocket subprotocol between a hub and an agent that has dialled it.
pub const HUB_PROTOCOL: &str = "tapml.hub.v1";

/// Largest message.
pub const MAX_MESSAGE: usize = 16 << 20;

/// What to say to whoever has sent a message that is larger than it may be; `None` if that is not what went wrong.
pub(crate) fn too_large(error: &tungstenite::Error) -> Option<Error> {
    use tungstenite::error::{CapacityError, Error::Capacity};
    let Capacity(CapacityError::MessageTooLong { size, max_size }) = error else { return None };
    let text = format!("a message of {size} bytes: here they have at most {max_size}");
    let hint = format!("large data goes in pieces of {PIECE} bytes (`Write`, `PutBlob`, `PutTensor`)");
    Some(Error::invalid(text).with_hint(hint))
}

/// Largest message of a client that has not been let in.
/// It is small, because whoever connects can make an agent hold one.
pub const MAX_HELLO: usize = 64 << 10;

/// Most fields in one message, nested ones included.
/// Each costs the decoder some bytes, however short it is on the wire.
pub const MAX_FIELDS: usize = 1 << 17;

/// Longest name, label or file name, bytes.
pub const MAX_NAME: usize = 4096;

/// Longest text about an agent or a device that a hub shows, bytes.
pub const MAX_LABEL: usize = 256;

/// Bytes of a text of an error or a finding that are told.
pub const MAX_REPORT_BYTES: usize = 256 << 10;

/// Details of an error that are told.
pub const MAX_DETAILS: usize = 64;

/// Most devices that one agent may register at a hub.
pub const MAX_AGENT_DEVICES: usize = 64;

/// Longest text of a kernel, bytes.
pub const MAX_TEXT: usize = 4 << 20;

/// Most bindings of one dispatch, and constants of one kernel.
pub const MAX_BINDINGS: usize = 1024;

/// Most turns of one message.
pub const MAX_BATCH: usize = 256;

/// Commands sent in one message; longer lists are cut.
pub const COMMANDS: usize = 1024;

/// Most commands of one list.
/// They may come in several messages; the device's process holds them all.
pub const MAX_COMMANDS: usize = 1 << 20;

/// Largest integer: what a JavaScript number holds exactly.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Bytes of one transfer message, and of one blob.
pub const PIECE: usize = 4 << 20;

/// Bytes of messages under way.
/// A client stops sending when so many are not acknowledged.
pub const WINDOW: u64 = 48 << 20;

/// Messages under way.
pub const WINDOW_COUNT: usize = 16_384;

/// Most hashes in one question.
pub const MAX_HASHES: usize = 16;

/// Most operators that a device announces.
pub const MAX_OPS: usize = 1024;

/// Most sizes of a tensor.
pub const MAX_RANK: usize = 8;

/// Most outputs of a node.
pub const MAX_OUTPUTS: usize = 256;

/// Longest attributes of a node, bytes of JSON.
pub const MAX_ATTRIBUTES: usize = 1 << 20;

/// Longest version of an operator's code, bytes.
pub const MAX_VERSION: usize = 64;

/// How long a client may take to be let in.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// How often the sides of a hub show that they are there, and after what time of silence a side is given up.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// After what time of silence a side is given up: several heartbeats, so that one that is late does not count.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client that waits at a hub may be silent: its computer may have been asleep.
pub const ASLEEP: Duration = Duration::from_secs(50);

/// How long an agent may take to dial the connection of a session.
pub const COMING: Duration = Duration::from_secs(15);
