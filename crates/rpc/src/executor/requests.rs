//! The execution of requests on a device.

use super::blobs::Blobs;
use super::handles::Handles;
use super::program::Loaded;
use crate::pipe::Settings;
use crate::recorder::Recorder;
use crate::wire::limits::{MAX_COMMANDS, PIECE};
use crate::wire::{self, Reply, Request, convert};
use bytes::Bytes;
use tapml_device::{BufferId, Command, Device, KernelId, ListId};
use tapml_graph::{Error, ErrorKind, Result, Symbols};

/// Bytes of one of several messages that answer together.
const PART: usize = 128 << 10;

/// Sends a reply to the request at hand.
pub type Answer<'a> = dyn FnMut(Reply) -> Result<()> + 'a;

/// What a byte of a kernel's text counts for: the text, its parsed form, and what is compiled from it.
pub(super) const TEXT_BYTES: u64 = 4;
/// What a command of a list counts for.
const COMMAND_BYTES: u64 = 256;

/// A device with the handles of its client.
pub struct Executor {
    pub(super) device: Box<dyn Device>,
    buffers: Handles<(BufferId, u64)>,
    /// With the bytes that each counts for, as those of lists.
    kernels: Handles<(KernelId, u64)>,
    lists: Handles<(ListId, u64)>,
    /// Commands of a list of which more are to come.
    partial: Option<(u32, Vec<wire::Command>)>,
    pub(super) programs: Handles<Loaded>,
    pub(super) blobs: Blobs,
    /// The first error of an unanswered request since the last one was told.
    deferred: Option<Error>,
    pub(super) memory: u64,
    memory_limit: u64,
    recorder: Recorder,
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
        let reply = match request {
            Request::Read(r) => match self.deferred.take() {
                None => return self.read(&r, true, answer).map(drop),
                Some(error) => Err(error),
            },
            Request::Step(wire::Step { writes, list, symbols, reads }) => match self.deferred.take() {
                None => return self.turns(list, &[wire::Turn { writes, symbols }], &reads, answer),
                Some(error) => Err(error),
            },
            Request::Turns(r) => match self.deferred.take() {
                None => return self.turns(r.list, &r.turns, &r.reads, answer),
                Some(error) => Err(error),
            },
            Request::RunProgram(r) => match self.deferred.take() {
                None => return self.run_program(r, answer),
                Some(error) => Err(error),
            },
            Request::Wait(_) => self.wait().map(|()| Reply::Done(wire::Done {})),
            Request::LoadProgram(r) => match self.deferred.take() {
                None => self.load_program(r).map(|()| Reply::Done(wire::Done {})),
                Some(error) => Err(error),
            },
            Request::CreateKernel(r) => self.create_kernel(r).map(|()| Reply::Done(wire::Done {})),
            Request::TakeFindings(_) => {
                let findings =
                    self.device.take_findings().into_iter().map(convert::finding_to_wire).collect();
                Ok(Reply::Findings(wire::Findings { findings }))
            }
            Request::HasBlobs(r) => Ok(Reply::HeldBlobs(self.has_blobs(&r))),
            Request::PutTensor(_) | Request::CallNode(_) | Request::CallGraph(_) => {
                Err(Error::unsupported("this device runs kernels, no operators"))
            }
            other => {
                if let Err(error) = self.unanswered(other) {
                    self.deferred.get_or_insert(error);
                }
                return Ok(());
            }
        };
        answer(reply.unwrap_or_else(|e| failed(&e)))
    }

    fn unanswered(&mut self, request: Request) -> Result<()> {
        match request {
            Request::CreateBuffer(r) => self.create_buffer(&r),
            Request::DestroyBuffer(r) => self.destroy_buffer(r.buffer),
            Request::Write(r) => self.write(r.buffer, r.offset, &r.data),
            Request::DestroyKernel(r) => match self.kernels.remove(r.kernel)? {
                Some((kernel, bytes)) => {
                    self.memory -= bytes;
                    self.device.destroy_kernel(kernel)
                }
                None => Ok(()),
            },
            Request::Record(r) => self.record(r),
            Request::Replay(r) => self.replay(r.list, &r.symbols),
            Request::DestroyList(r) => match self.lists.remove(r.list)? {
                Some((list, bytes)) => {
                    self.memory -= bytes;
                    self.device.destroy_list(list)
                }
                None => Ok(()),
            },
            Request::PutBlob(r) => {
                self.blobs.put(r.data, &r.hash);
                Ok(())
            }
            Request::WriteBlob(r) => {
                let data = self.blobs.need(&r.hash)?;
                self.write(r.buffer, r.offset, &data)
            }
            Request::UnloadProgram(r) => self.unload_program(r.program),
            _ => Err(Error::invalid("a request that has no place here")),
        }
    }

    fn create_buffer(&mut self, r: &wire::CreateBuffer) -> Result<()> {
        self.buffers.expect_free(r.buffer)?;
        let made =
            self.expect_room(&r.label, r.size).and_then(|()| self.device.create_buffer(&r.label, r.size));
        self.buffers.insert(r.buffer, made.as_ref().ok().map(|&id| (id, r.size)));
        made.map(|_| self.memory += r.size)
    }

    /// Fails if the session may not have so many bytes more.
    pub(super) fn expect_room(&self, label: &str, bytes: u64) -> Result<()> {
        let (have, most) = (self.memory, self.memory_limit);
        match have.checked_add(bytes).is_some_and(|total| total <= most) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("`{label}` of {bytes} bytes: the session has {have} bytes and may have {most}"),
            )),
        }
    }

    fn destroy_buffer(&mut self, id: u32) -> Result<()> {
        let Some((buffer, size)) = self.buffers.remove(id)? else { return Ok(()) };
        self.memory -= size;
        self.device.destroy_buffer(buffer)
    }

    fn write(&mut self, buffer: u32, offset: u64, data: &[u8]) -> Result<()> {
        let (buffer, _) = *self.buffers.get(buffer)?;
        self.device.write(buffer, offset, data)
    }

    fn wait(&mut self) -> Result<()> {
        let waited = self.device.wait();
        self.deferred.take().map_or(waited, Err)
    }

    /// Answers with pieces, so that a claim of any size allocates one piece. `last` if nothing follows these bytes.
    /// False if the answer was an error.
    fn read(&mut self, r: &wire::Read, last: bool, answer: &mut Answer<'_>) -> Result<bool> {
        let mut sent = 0;
        loop {
            let len = (r.size - sent).min(PIECE as u64);
            let mut data = vec![0; len as usize];
            let read = self.buffers.get(r.buffer).map(|(id, _)| *id).and_then(|buffer| {
                let offset =
                    r.offset.checked_add(sent).ok_or_else(|| Error::invalid("the offset overflows"))?;
                self.device.read(buffer, offset, &mut data)
            });
            if let Err(error) = read {
                return answer(failed(&error)).map(|()| false);
            }
            sent += len;
            let end = sent == r.size;
            give(data.into(), last && end, answer)?;
            if end {
                return Ok(true);
            }
        }
    }

    /// See [`wire::Step`] and [`wire::Turns`].
    fn turns(
        &mut self,
        list: u32,
        turns: &[wire::Turn],
        reads: &[wire::Read],
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        for (at, turn) in (1..).zip(turns) {
            self.recorder.turn(at);
            let written = turn.writes.iter().try_for_each(|w| self.write(w.buffer, w.offset, &w.data));
            if let Err(error) = written.and_then(|()| self.replay(list, &turn.symbols)) {
                return answer(failed(&error));
            }
        }
        let Some((end, reads)) = reads.split_last() else {
            let waited = self.device.wait();
            let data = wire::Data { data: Bytes::new(), last: true };
            return answer(waited.map_or_else(|e| failed(&e), |()| Reply::Data(data)));
        };
        for read in reads {
            if !self.read(read, false, answer)? {
                return Ok(());
            }
        }
        self.read(end, true, answer).map(drop)
    }

    fn create_kernel(&mut self, r: wire::CreateKernel) -> Result<()> {
        self.kernels.expect_free(r.kernel)?;
        let id = r.kernel;
        let bytes = TEXT_BYTES * (r.prelude.len() + r.text.len()) as u64;
        self.expect_room(&r.name, bytes)?;
        let kernel = self.device.create_kernel(&convert::kernel_from_wire(r)?)?;
        self.memory += bytes;
        self.kernels.insert(id, Some((kernel, bytes)));
        Ok(())
    }

    fn record(&mut self, mut r: wire::Record) -> Result<()> {
        let mut commands = match self.partial.take() {
            Some((list, commands)) if list == r.list => commands,
            Some((list, _)) => return Err(Error::invalid(format!("list {} within list {list}", r.list))),
            None => Vec::new(),
        };
        commands.append(&mut r.commands);
        if commands.len() > MAX_COMMANDS {
            return Err(Error::unsupported(format!("a list of more than {MAX_COMMANDS} commands")));
        }
        if r.more {
            self.partial = Some((r.list, commands));
            return Ok(());
        }
        self.lists.expect_free(r.list)?;
        let bytes = COMMAND_BYTES * commands.len() as u64;
        let made = self.expect_room("a list", bytes).and_then(|()| self.record_all(&commands));
        self.lists.insert(r.list, made.as_ref().ok().map(|&list| (list, bytes)));
        made.map(|_| self.memory += bytes)
    }

    fn record_all(&mut self, commands: &[wire::Command]) -> Result<ListId> {
        let buffer = |id| self.buffers.get(id).map(|(buffer, _)| *buffer);
        let kernel = |id| self.kernels.get(id).map(|(kernel, _)| *kernel);
        let commands: Vec<Command> = commands
            .iter()
            .map(|command| convert::command_from_wire(command, buffer, kernel))
            .collect::<Result<_>>()?;
        self.device.record(&commands)
    }

    fn replay(&mut self, list: u32, symbols: &[wire::Symbol]) -> Result<()> {
        let symbols: Symbols = convert::symbols_from_wire(symbols)?;
        self.device.replay(self.lists.get(list)?.0, &symbols)
    }

    fn has_blobs(&mut self, r: &wire::HasBlobs) -> wire::HeldBlobs {
        wire::HeldBlobs { held: r.hashes.iter().map(|h| self.blobs.need(h).is_ok()).collect() }
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

/// The reply that tells an error.
pub fn failed(error: &Error) -> Reply {
    Reply::Failed(convert::error_to_wire(error))
}
