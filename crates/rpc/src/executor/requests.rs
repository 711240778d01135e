//! A device with the handles of its client, and what happens to a request: it is performed, answered, or its failure is kept.
//!
//! A request is a message with an implementation of [`Execute`]. The executor decides what becomes of its result, by
//! what the message says of its answer.

use super::blobs::Blobs;
use super::handles::Handles;
use crate::pipe::Settings;
use crate::recorder::Recorder;
use crate::wire::limits::{MAX_INTEGER, PIECE};
use crate::wire::{self, Answered, Reply, Request, convert, with_to_agent};
use bytes::Bytes;
use tapml_device::{BufferId, Device, KernelId, ListId};
use tapml_graph::{Error, ErrorKind, Result};
use tapml_kernels::Instance;

/// Bytes of one of several messages that answer together.
const PART: usize = 128 << 10;

/// Sends a reply to the request at hand. Fails only if the session cannot go on.
pub type Answer<'a> = dyn FnMut(Reply) -> Result<()> + 'a;

/// What a byte of a kernel's text counts for: the text, its parsed form, and what is compiled from it.
pub(super) const TEXT_BYTES: u64 = 4;

/// How a request is performed.
pub(super) trait Execute {
    /// What an agent says it can do by its welcome if it performs this request; nothing for the commands that every device
    /// takes.
    const CAPABILITY: Option<&'static str> = None;

    /// Performs it. Gives the reply, or nothing if it is not answered or all of the answer was sent. An error is the answer
    /// as well, or is kept for a later one.
    fn execute(self, executor: &mut Executor, answer: &mut Answer<'_>) -> Result<Option<Reply>>;
}

/// A program on the device, and the bytes that it counts for: those of its buffers and of its kernels.
pub(super) struct Loaded {
    /// With the kernels that it owns.
    pub(super) instance: Instance,
    /// Given back when it is unloaded.
    pub(super) bytes: u64,
}

/// A device with the handles of its client.
pub struct Executor {
    /// The one device of the session.
    pub(super) device: Box<dyn Device>,
    /// With their bytes.
    pub(super) buffers: Handles<(BufferId, u64)>,
    /// With the bytes that each counts for, as those of lists.
    pub(super) kernels: Handles<(KernelId, u64)>,
    pub(super) lists: Handles<(ListId, u64)>,
    /// Commands of a list of which more are to come.
    pub(super) partial: Option<(u32, Vec<wire::Command>)>,
    /// Loaded programs, each with its instance.
    pub(super) programs: Handles<Loaded>,
    /// Blobs of this session and of the agent's folder.
    pub(super) blobs: Blobs,
    /// The first error of an unanswered request since the last one was told.
    deferred: Option<Error>,
    /// Bytes that count for what exists.
    pub(super) memory: u64,
    /// Bytes that may count; set by the agent.
    memory_limit: u64,
    /// Where the process notes what it does.
    pub(super) recorder: Recorder,
}

impl Executor {
    /// A device without anything on it.
    pub fn new(device: Box<dyn Device>, settings: &Settings, recorder: Recorder) -> Executor {
        Executor {
            device,
            buffers: Handles::new("buffer"),
            kernels: Handles::new("kernel"),
            lists: Handles::new("list"),
            partial: None,
            programs: Handles::new("program"),
            blobs: Blobs::new(&settings.blobs, settings.blob_bytes),
            deferred: None,
            memory: 0,
            memory_limit: settings.memory,
            recorder,
        }
    }

    /// Executes one request. Fails only if the session cannot go on.
    pub fn execute(&mut self, request: Request, answer: &mut Answer<'_>) -> Result<()> {
        let answered = request.answer_kind();
        // Such a request is not performed after a failure: its result would rest on work that was not done.
        let earlier = if answered == Answered::AfterFailures { self.deferred.take() } else { None };
        let done = match earlier {
            Some(error) => Err(error),
            None => with_to_agent!(request, message => message.execute(self, answer)),
        };
        match done {
            Ok(Some(reply)) => answer(reply),
            Ok(None) => Ok(()),
            Err(error) if answered == Answered::Never => {
                // The first error counts: others are likely to follow from it.
                self.deferred.get_or_insert(error);
                Ok(())
            }
            Err(error) => answer(Reply::Failed(convert::error_to_wire(&error))),
        }
    }

    /// Fails if the session may not have so many bytes more.
    pub(super) fn expect_room(&self, label: &str, bytes: u64) -> Result<()> {
        let (have, most) = (self.memory, self.memory_limit);
        if have.checked_add(bytes).is_some_and(|total| total <= most) {
            return Ok(());
        }
        let text = format!("`{label}` of {bytes} bytes: the session has {have} bytes and may have {most}");
        Err(Error::new(ErrorKind::OutOfMemory, text))
    }

    /// The device's own handle of a buffer.
    pub(super) fn buffer(&self, id: u32) -> Result<BufferId> {
        self.buffers.get(id).map(|(buffer, _)| *buffer)
    }

    /// Writes to a buffer by the client's handle.
    pub(super) fn write(&mut self, buffer: u32, offset: u64, data: &[u8]) -> Result<()> {
        let buffer = self.buffer(buffer)?;
        self.device.write(buffer, offset, data)
    }

    /// Answers with pieces, so that a claim of any size allocates one piece. `last` if nothing follows these bytes.
    pub(super) fn read(&mut self, r: &wire::Read, last: bool, answer: &mut Answer<'_>) -> Result<()> {
        let mut sent = 0;
        loop {
            // Only one piece is allocated at a time; the device refuses what is out of bounds.
            let len = (r.size - sent).min(PIECE as u64);
            let mut data = vec![0; len as usize];
            let buffer = self.buffer(r.buffer)?;
            let offset = r.offset.checked_add(sent).ok_or_else(|| Error::invalid("the offset overflows"))?;
            self.device.read(buffer, offset, &mut data)?;
            sent += len;
            let end = sent == r.size;
            give(data.into(), last && end, answer)?;
            if end {
                return Ok(());
            }
        }
    }
}

impl Execute for wire::GetMemory {
    const CAPABILITY: Option<&'static str> = Some("memory");

    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        let [held, limit] = [executor.memory, executor.memory_limit].map(|bytes| bytes.min(MAX_INTEGER));
        Ok(Some(Reply::Memory(wire::Memory { held, limit })))
    }
}

/// Answers with bytes; `last` if nothing follows them. Less than a piece, as a step's answer is, goes in several messages, so
/// that all who hand it on are at work at once.
pub(super) fn give(mut data: Bytes, last: bool, answer: &mut Answer<'_>) -> Result<()> {
    let short = if data.len() < PIECE { PART } else { PIECE };
    loop {
        let part = data.split_to(short.min(data.len()));
        let last = last && data.is_empty();
        answer(Reply::Data(wire::Data { data: part, last }))?;
        if data.is_empty() {
            return Ok(());
        }
    }
}

/// The reply to a request that gives nothing but that it is finished.
pub(super) fn done() -> Result<Option<Reply>> {
    Ok(Some(Reply::Done(wire::Done {})))
}
