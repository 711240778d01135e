//! Blobs that an agent keeps.
//!
//! A blob is at most a piece long and is known by its BLAKE3 hash, so that a client need not send what an agent has.

use super::bounds::{at_most, hash, integer};
use super::{Answered, Names, Note, ReplyMessage, RequestMessage};
use crate::wire::limits::{MAX_HASHES, PIECE};
use crate::wire::{HasBlobs, HeldBlobs, PutBlob, WriteBlob};
use tapml_graph::{Error, Result};

impl RequestMessage for HasBlobs {
    const ANSWERED: Answered = Answered::Always;

    fn check(&self) -> Result<()> {
        // An agent reads each blob from its folder to answer.
        at_most("hashes", self.hashes.len(), MAX_HASHES)?;
        self.hashes.iter().try_for_each(|h| hash(h))
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("ask for {} blobs", self.hashes.len()))
    }
}

impl ReplyMessage for HeldBlobs {
    fn words(&self) -> String {
        "an answer about blobs".into()
    }
}

impl RequestMessage for PutBlob {
    const ANSWERED: Answered = Answered::Never;

    fn check(&self) -> Result<()> {
        if self.data.len() > PIECE {
            return Err(Error::invalid(format!("a blob of {} bytes, at most {PIECE}", self.data.len())));
        }
        // Without a hash the agent computes it.
        if self.hash.is_empty() { Ok(()) } else { hash(&self.hash) }
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("keep a blob of {} bytes", self.data.len()))
    }
}

impl RequestMessage for WriteBlob {
    const ANSWERED: Answered = Answered::Never;

    fn check(&self) -> Result<()> {
        integer("offset", self.offset)?;
        hash(&self.hash)
    }

    fn note(&self, names: &Names) -> Note {
        Note::Text(format!("write a blob at {} of {}", self.offset, names.buffer(self.buffer)))
    }
}
