//! Buffers: made and freed, written and read; and what the device has done by now.
//!
//! Buffers are named by handles that the client chooses, so that it need not wait for an answer. Writes and their
//! like are not answered; a failure of theirs is told by the next wait or read.

use super::bounds::{integer, name};
use super::{Answered, Names, Note, ReplyMessage, RequestMessage};
use crate::wire::{
    CreateBuffer, DestroyBuffer, Findings, GetMemory, Memory, Read, TakeFindings, Wait, Write,
};
use tapml_graph::Result;

impl RequestMessage for CreateBuffer {
    const ANSWERED: Answered = Answered::Never;

    fn check(&self) -> Result<()> {
        // Whether there is so much memory is the executor's business.
        name("label", &self.label)?;
        integer("size", self.size)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("create buffer {} `{}` of {} bytes", self.buffer, self.label, self.size))
    }

    // Journals tell buffers by label and size.
    fn remember(&self, names: &mut Names, _: usize) {
        names.add_buffer(self.buffer, &self.label, self.size);
    }
}

impl RequestMessage for DestroyBuffer {
    const ANSWERED: Answered = Answered::Never;

    fn note(&self, names: &Names) -> Note {
        Note::Text(format!("destroy {}", names.buffer(self.buffer)))
    }

    fn remember(&self, names: &mut Names, _: usize) {
        names.remove_buffer(self.buffer);
    }
}

impl RequestMessage for Write {
    const ANSWERED: Answered = Answered::Never;

    fn check(&self) -> Result<()> {
        integer("offset", self.offset)
    }

    fn note(&self, names: &Names) -> Note {
        let (bytes, place) = (self.data.len(), names.buffer(self.buffer));
        Note::Text(format!("write {bytes} bytes at {} of {place}", self.offset))
    }
}

// A read waits for the work before it, so that failures of that work are its answer.
impl RequestMessage for Read {
    const ANSWERED: Answered = Answered::AfterFailures;

    fn check(&self) -> Result<()> {
        integer("offset", self.offset)?;
        integer("size", self.size)
    }

    fn note(&self, names: &Names) -> Note {
        Note::Text(format!("read {} bytes at {} of {}", self.size, self.offset, names.buffer(self.buffer)))
    }
}

impl RequestMessage for Wait {
    const ANSWERED: Answered = Answered::AfterFailures;

    fn note(&self, _: &Names) -> Note {
        Note::Text("wait".into())
    }
}

// Findings are told even after a failure: they may explain it.
impl RequestMessage for TakeFindings {
    const ANSWERED: Answered = Answered::Always;

    fn note(&self, _: &Names) -> Note {
        Note::Text("take findings".into())
    }
}

impl ReplyMessage for Findings {
    fn words(&self) -> String {
        "findings".into()
    }
}

impl RequestMessage for GetMemory {
    const ANSWERED: Answered = Answered::Always;

    fn note(&self, _: &Names) -> Note {
        Note::Text("ask what the session holds".into())
    }
}

impl ReplyMessage for Memory {
    fn check(&self) -> Result<()> {
        integer("held", self.held)?;
        integer("limit", self.limit)
    }

    fn words(&self) -> String {
        format!("{} of {} bytes", self.held, self.limit)
    }
}
