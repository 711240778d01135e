//! Buffers, blobs that are written to them, and what the device has done by now.
//!
//! An error of an unanswered request is kept by the executor. Memory counts what the client asked for, whatever the
//! device takes for it.

use super::requests::{Answer, Execute, Executor, done};
use crate::wire::{self, Reply, convert};
use tapml_graph::Result;

/// Not answered, as all requests on buffers that give nothing back.
impl Execute for wire::CreateBuffer {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        executor.buffers.expect_free(self.buffer)?;
        let room = executor.expect_room(&self.label, self.size);
        let made = room.and_then(|()| executor.device.create_buffer(&self.label, self.size));
        // A handle whose buffer could not be made is known as such, so that later uses of it say why.
        executor.buffers.insert(self.buffer, made.as_ref().ok().map(|&id| (id, self.size)));
        made.map(|_| executor.memory += self.size)?;
        Ok(None)
    }
}

impl Execute for wire::DestroyBuffer {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        if let Some((buffer, size)) = executor.buffers.remove(self.buffer)? {
            // The handle is gone even if the device fails: its bytes are given back in any case.
            executor.memory -= size;
            executor.device.destroy_buffer(buffer)?;
        }
        Ok(None)
    }
}

impl Execute for wire::Write {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        executor.write(self.buffer, self.offset, &self.data)?;
        Ok(None)
    }
}

/// Answered by the bytes, in pieces.
impl Execute for wire::Read {
    fn execute(self, executor: &mut Executor, answer: &mut Answer<'_>) -> Result<Option<Reply>> {
        executor.read(&self, true, answer)?;
        Ok(None)
    }
}

/// Answered when the device has done everything that was asked before.
impl Execute for wire::Wait {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        executor.device.wait()?;
        done()
    }
}

/// Findings are told a single time: the device forgets them.
impl Execute for wire::TakeFindings {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        let findings = executor.device.take_findings().into_iter().map(convert::finding_to_wire).collect();
        Ok(Some(Reply::Findings(wire::Findings { findings })))
    }
}

impl Execute for wire::HasBlobs {
    const CAPABILITY: Option<&'static str> = Some("blobs");

    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        // A blob that is found is kept in memory, so that it is still there when it is used.
        let held = self.hashes.iter().map(|hash| executor.blobs.need(hash).is_ok()).collect();
        Ok(Some(Reply::HeldBlobs(wire::HeldBlobs { held })))
    }
}

/// Not answered: a blob that could not be kept is missed where it is needed.
impl Execute for wire::PutBlob {
    const CAPABILITY: Option<&'static str> = Some("blobs");

    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        executor.blobs.put(self.data, &self.hash);
        Ok(None)
    }
}

impl Execute for wire::WriteBlob {
    const CAPABILITY: Option<&'static str> = Some("blobs");

    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        let data = executor.blobs.need(&self.hash)?;
        executor.write(self.buffer, self.offset, &data)?;
        Ok(None)
    }
}
