//! Frames between an agent and the process of a session: a length, the number of the last finished request, the bytes.

use crate::wire::limits::MAX_MESSAGE;
use bytes::Bytes;
use std::io::{self, Read, Write};

/// A message and its number: of the request itself, or of the last request that is finished.
pub type Frame = (u64, Bytes);

/// Up to this length a copy costs less than a second call to the system, which wakes the reader twice.
pub const AT_ONCE: usize = 64 << 10;

/// Writes one frame.
pub fn write(to: &mut impl Write, seq: u64, bytes: &[u8]) -> io::Result<()> {
    let mut head = [0; 12];
    head[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&seq.to_le_bytes());
    if bytes.len() < AT_ONCE {
        to.write_all(&[&head, bytes].concat())?
    } else {
        to.write_all(&head)?;
        to.write_all(bytes)?;
    }
    to.flush()
}

/// Reads one frame; `None` at the end of the stream.
pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0; 12];
    let mut have = 0;
    while have < head.len() {
        match from.read(&mut head[have..])? {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => have += n,
        }
    }
    let [a, b, c, d, seq @ ..] = head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if len > MAX_MESSAGE + 1024 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {len} bytes")));
    }
    let mut bytes = Vec::with_capacity(len);
    from.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() == len {
        Ok(Some((u64::from_le_bytes(seq), bytes.into())))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// What the agent tells a session's process first.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Settings {
    /// The flight recorder's file.
    #[prost(string, tag = "1")]
    pub recorder: String,
    /// Folder of blobs.
    #[prost(string, tag = "2")]
    pub blobs: String,
    /// Bytes of blobs kept there.
    #[prost(uint64, tag = "3")]
    pub blob_bytes: u64,
    /// Bytes of buffers that the session may have.
    #[prost(uint64, tag = "4")]
    pub memory: u64,
}
