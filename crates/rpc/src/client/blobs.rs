//! Content-addressed uploads: what the agent holds already is not sent again.

use super::connection::Connection;
use crate::wire::limits::{MAX_HASHES, PIECE};
use crate::wire::{self, Reply, Request};
use bytes::Bytes;
use tapml_graph::{Error, Result};

/// Shorter data is sent at once: asking costs a round trip.
pub const WORTHWHILE: usize = 256 << 10;

/// Bytes sent and bytes that the agent held already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Bytes sent as blobs.
    pub sent: u64,
    /// Bytes not sent.
    pub held: u64,
}

/// Hands the pieces of `data` to the agent, as far as it does not hold them. `each` is called in between with the offset
/// and the hash of each piece, which the agent then holds.
pub fn upload(
    connection: &mut Connection,
    data: &[u8],
    saved: &mut Saved,
    each: &mut dyn FnMut(&mut Connection, u64, Bytes) -> Result<()>,
) -> Result<()> {
    for (group, pieces) in data.chunks(PIECE * MAX_HASHES).enumerate() {
        let hashes: Vec<Bytes> =
            pieces.chunks(PIECE).map(|p| Bytes::copy_from_slice(blake3::hash(p).as_bytes())).collect();
        let ask = Request::HasBlobs(wire::HasBlobs { hashes: hashes.clone() });
        let seq = connection.send(ask, true)?;
        let Reply::HeldBlobs(held) = connection.wait(seq)? else {
            return Err(Error::invalid("the agent answers a question for blobs with something else"));
        };
        for (i, (piece, hash)) in pieces.chunks(PIECE).zip(hashes).enumerate() {
            if held.held.get(i) == Some(&true) {
                saved.held += piece.len() as u64;
            } else {
                saved.sent += piece.len() as u64;
                let data = Bytes::copy_from_slice(piece);
                let put = Request::PutBlob(wire::PutBlob { data, hash: hash.clone() });
                connection.send(put, true)?;
            }
            each(connection, ((group * MAX_HASHES + i) * PIECE) as u64, hash)?;
        }
    }
    Ok(())
}
