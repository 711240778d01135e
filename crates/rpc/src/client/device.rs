//! The device.

use super::again::Origin;
use super::blobs::{self, Saved};
use super::connection::Connection;
use super::described;
use crate::wire::convert::{self, handle};
use crate::wire::limits::{COMMANDS, MAX_BATCH, MAX_BINDINGS, PIECE};
use crate::wire::{self, Reply, Request};
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tapml_device::{
    BatchedStep, BufferId, Command, Device, DeviceInfo, Finding, Get, HandleTable, KernelDesc, KernelId,
    ListId, Put, one_by_one,
};
use tapml_graph::{Error, Result, Symbols};

/// A device behind an agent. Wrong calls are refused here, without a round trip; [`Device::read`], [`Device::wait`],
/// [`Device::create_kernel`] and [`Device::take_findings`] wait for the agent, all other calls return at once and report
/// what failed at the next read or wait.
///
/// A lost connection, a crash of the device's process and a missed deadline are [`tapml_graph::ErrorKind::DeviceLost`] with
/// a post-mortem in the error's details.
pub struct RemoteDevice {
    pub(super) connection: Connection,
    origin: Origin,
    handles: HandleTable,
    /// Buffers that nothing was written to: their first contents are likely to be the same the next time.
    fresh: HashSet<BufferId>,
    /// What the agent can do beside the commands of a device.
    capabilities: Vec<String>,
    saved: Saved,
    pub(super) programs: u32,
    /// An error of a call that cannot return one.
    pending: Option<Error>,
}

/// What stands between a device's own name and where it is.
const AT: &str = " at ";

/// The name that a device elsewhere has for itself, of the one that [`RemoteDevice`] shows.
pub fn own_name(shown: &str) -> &str {
    shown.rsplit_once(AT).map_or(shown, |(own, _)| own)
}

/// Gives up, from another thread, the request that a device waits for.
#[derive(Clone)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// The request is cancelled. If it runs and does not end soon, the device is lost.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl RemoteDevice {
    /// The device that a welcome describes.
    pub(super) fn new(
        connection: Connection,
        origin: Origin,
        info: &wire::DeviceInfo,
        capabilities: &[String],
    ) -> Result<RemoteDevice> {
        let mut info = convert::info_from_wire(info)?;
        // Devices of the same kind on several machines must be told apart in reports.
        info.name = format!("{}{AT}{}", info.name, connection.place());
        Ok(RemoteDevice {
            connection,
            origin,
            handles: HandleTable::new(info),
            fresh: HashSet::new(),
            capabilities: capabilities.to_vec(),
            saved: Saved::default(),
            programs: 0,
            pending: None,
        })
    }

    fn can(&self, what: &str) -> bool {
        self.capabilities.iter().any(|capability| capability == what)
    }

    /// What gives up a request from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.connection.stop_flag())
    }

    /// Bytes of first contents sent, and bytes that the agent held already.
    pub fn saved_bytes(&self) -> (u64, u64) {
        (self.saved.sent, self.saved.held)
    }

    /// What the session holds at the agent, programs included, which [`Device::memory`] does not see. `None` if the agent cannot
    /// tell.
    pub fn session_memory(&mut self) -> Result<Option<wire::Memory>> {
        if !self.can("memory") {
            return Ok(None);
        }
        let Reply::Memory(memory) = self.ask(Request::GetMemory(wire::GetMemory {}))? else {
            return Err(Error::invalid("the agent answers a question for memory with something else"));
        };
        Ok(Some(memory))
    }

    /// Hands bytes to the agent's blobs; the hashes of their pieces.
    pub(super) fn keep(&mut self, data: &[u8]) -> Result<Vec<Bytes>> {
        let mut hashes = Vec::new();
        let mut each = |_: &mut Connection, _: u64, hash: Bytes| {
            hashes.push(hash);
            Ok(())
        };
        blobs::upload(&mut self.connection, data, &mut self.saved, &mut each)?;
        Ok(hashes)
    }

    /// Sends a request that is not answered.
    pub(super) fn send(&mut self, request: Request, flush: bool) -> Result<()> {
        self.connection.send(request, flush).map(drop)
    }

    /// Sends a request and waits for its reply.
    pub(super) fn ask(&mut self, request: Request) -> Result<Reply> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let seq = self.connection.send(request, true)?;
        self.connection.wait(seq)
    }

    fn write_blobs(&mut self, buffer: BufferId, data: &[u8]) -> Result<()> {
        let id = handle(buffer.0)?;
        let mut each = |connection: &mut Connection, offset: u64, hash: Bytes| {
            let write = Request::WriteBlob(wire::WriteBlob { buffer: id, offset, hash });
            connection.send(write, false).map(drop)
        };
        blobs::upload(&mut self.connection, data, &mut self.saved, &mut each)
    }

    /// What a turn writes and its symbols, for the wire. What is wrong with the list is told by the device itself: the answer
    /// is waited for.
    fn turn(&mut self, writes: &[Put<'_>], symbols: &Symbols) -> Result<wire::Turn> {
        let put = |put: &Put<'_>| {
            // Refused before anything is sent: half of a turn would leave the device in a state that nobody
            // asked for.
            self.handles.write(put.buffer, put.offset, put.data.len())?;
            self.fresh.remove(&put.buffer);
            let data = Bytes::copy_from_slice(put.data);
            Ok(wire::Write { buffer: handle(put.buffer.0)?, offset: put.offset, data })
        };
        let writes = writes.iter().map(put).collect::<Result<Vec<_>>>()?;
        Ok(wire::Turn { writes, symbols: convert::symbols_to_wire(symbols)? })
    }

    /// Reads as the wire carries them; those of nothing are left out.
    fn wire_reads(&self, reads: &[Get<'_>]) -> Result<Vec<wire::Read>> {
        let get = |get: &Get<'_>| {
            self.handles.read(get.buffer, get.offset, get.out.len())?;
            let (buffer, size) = (handle(get.buffer.0)?, get.out.len() as u64);
            Ok(wire::Read { buffer, offset: get.offset, size })
        };
        // The answer would have no piece for it.
        reads.iter().filter(|get| !get.out.is_empty()).map(get).collect()
    }

    /// Receives an answer that goes to several places one after the other.
    fn receive_all(&mut self, request: Request, reads: &mut [Get<'_>]) -> Result<()> {
        // One place takes the pieces as they come; several are cut out of a copy.
        if let [get] = reads {
            return self.receive(request, get.out);
        }
        let mut all = vec![0; reads.iter().map(|get| get.out.len()).sum()];
        self.receive(request, &mut all)?;
        let mut rest = all.as_slice();
        for get in reads {
            let (part, after) = rest.split_at(get.out.len());
            get.out.copy_from_slice(part);
            rest = after;
        }
        Ok(())
    }

    /// Receives the pieces of an answer into `out`, which they fill exactly.
    pub(super) fn receive(&mut self, request: Request, out: &mut [u8]) -> Result<()> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let seq = self.connection.send(request, true)?;
        let mut have = 0;
        loop {
            let Reply::Data(wire::Data { data, last }) = self.connection.wait(seq)? else {
                return Err(Error::invalid("the agent answers a read with something else than data"));
            };
            let end = have + data.len();
            // Both ends must agree on which piece is the last: an agent that sends too little would be waited
            // for without end.
            let (wanted, complete) = (out.len(), end == out.len());
            match out.get_mut(have..end) {
                Some(part) if complete == last => part.copy_from_slice(&data),
                _ => return Err(Error::invalid(format!("the agent sent {end} bytes or more of {wanted}"))),
            }
            if last {
                return Ok(());
            }
            have = end;
        }
    }
}

impl Device for RemoteDevice {
    fn info(&self) -> &DeviceInfo {
        self.handles.info()
    }

    fn create_buffer(&mut self, label: &str, size: u64) -> Result<BufferId> {
        let id = self.handles.create_buffer(label, size)?;
        let request = wire::CreateBuffer { buffer: handle(id.0)?, label: clip(label), size };
        self.send(Request::CreateBuffer(request), false)?;
        self.fresh.insert(id);
        Ok(id)
    }

    fn destroy_buffer(&mut self, buffer: BufferId) -> Result<()> {
        self.handles.destroy_buffer(buffer)?;
        self.fresh.remove(&buffer);
        let request = Request::DestroyBuffer(wire::DestroyBuffer { buffer: handle(buffer.0)? });
        self.send(request, false)
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.handles.write(buffer, offset, data.len())?;
        let fresh = self.fresh.remove(&buffer);
        // Hashing pays off for weights, which come first and whole. Rows of a step are new each time.
        if self.can("blobs") && fresh && offset == 0 && data.len() >= blobs::WORTHWHILE {
            return self.write_blobs(buffer, data);
        }
        let id = handle(buffer.0)?;
        for (i, piece) in data.chunks(PIECE).enumerate() {
            let at = offset + (i * PIECE) as u64;
            let write = wire::Write { buffer: id, offset: at, data: Bytes::copy_from_slice(piece) };
            // Long transfers begin at once, short ones leave with the next call.
            let flush = piece.len() >= blobs::WORTHWHILE;
            self.send(Request::Write(write), flush)?;
        }
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<()> {
        self.handles.read(buffer, offset, out.len())?;
        let read = wire::Read { buffer: handle(buffer.0)?, offset, size: out.len() as u64 };
        self.receive(Request::Read(read), out)
    }

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        let id = self.handles.create_kernel(desc)?;
        // An agent in a browser cannot compare a text with its description.
        if let Err(error) = described::check(desc) {
            return self.handles.destroy_kernel(id).and(Err(error));
        }
        let request = Request::CreateKernel(convert::kernel_to_wire(handle(id.0)?, desc));
        match self.ask(request) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.handles.destroy_kernel(id)?;
                Err(error)
            }
        }
    }

    fn destroy_kernel(&mut self, kernel: KernelId) -> Result<()> {
        self.handles.destroy_kernel(kernel)?;
        let request = Request::DestroyKernel(wire::DestroyKernel { kernel: handle(kernel.0)? });
        self.send(request, false)
    }

    fn record(&mut self, commands: &[Command]) -> Result<ListId> {
        let converted: Vec<wire::Command> =
            commands.iter().map(convert::command_to_wire).collect::<Result<_>>().or_else(|e| {
                // What the wire cannot carry is out of bounds as well; the books say so in the device's own words.
                self.handles.record(commands)?;
                Err(e)
            })?;
        let id = self.handles.record(commands)?;
        let list = handle(id.0)?;
        // A message has a bound for its commands, a list has none.
        let mut parts = converted.chunks(COMMANDS).map(<[_]>::to_vec).collect::<Vec<_>>();
        let last = parts.pop().unwrap_or_default();
        for commands in parts {
            let part = wire::Record { list, commands, more: true };
            self.send(Request::Record(part), false)?;
        }
        let record = wire::Record { list, commands: last, more: false };
        self.send(Request::Record(record), true)?;
        Ok(id)
    }

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        self.handles.replay(list, symbols)?;
        let replay = wire::Replay { list: handle(list.0)?, symbols: convert::symbols_to_wire(symbols)? };
        self.send(Request::Replay(replay), true)
    }

    fn step(
        &mut self,
        list: ListId,
        symbols: &Symbols,
        writes: &[Put<'_>],
        reads: &mut [Get<'_>],
    ) -> Result<()> {
        let sent: usize = writes.iter().map(|put| put.data.len()).sum();
        // What is large goes in pieces; without a read there is nothing to wait for.
        if !self.can("steps")
            || reads.is_empty()
            || sent > PIECE
            || writes.len().max(reads.len()) > MAX_BINDINGS
        {
            writes.iter().try_for_each(|put| self.write(put.buffer, put.offset, put.data))?;
            self.replay(list, symbols)?;
            return reads.iter_mut().try_for_each(|get| self.read(get.buffer, get.offset, get.out));
        }
        let wire::Turn { writes, symbols: values } = self.turn(writes, symbols)?;
        let (list, asked) = (handle(list.0)?, self.wire_reads(reads)?);
        let step = wire::Step { writes, list, symbols: values, reads: asked };
        self.receive_all(Request::Step(step), reads)
    }

    fn run_steps(&mut self, list: ListId, turns: &[BatchedStep<'_>], reads: &mut [Get<'_>]) -> Result<()> {
        let sent: usize = turns.iter().flat_map(|turn| &turn.writes).map(|put| put.data.len()).sum();
        let writes: usize = turns.iter().map(|turn| turn.writes.len()).sum();
        let few = turns.len() <= MAX_BATCH && writes.max(reads.len()) <= MAX_BINDINGS && sent <= PIECE;
        // One turn is a plain step.
        if !self.can("turns") || turns.len() < 2 || reads.is_empty() || !few {
            return one_by_one(self, list, turns, reads);
        }
        let turns = turns.iter().map(|turn| self.turn(&turn.writes, &turn.symbols));
        let turns = turns.collect::<Result<Vec<_>>>()?;
        let (list, asked) = (handle(list.0)?, self.wire_reads(reads)?);
        let turns = wire::Turns { list, turns, reads: asked };
        self.receive_all(Request::Turns(turns), reads)
    }

    fn destroy_list(&mut self, list: ListId) -> Result<()> {
        self.handles.destroy_list(list)?;
        let request = Request::DestroyList(wire::DestroyList { list: handle(list.0)? });
        self.send(request, false)
    }

    fn wait(&mut self) -> Result<()> {
        self.ask(Request::Wait(wire::Wait {})).map(drop)
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        let taken = self.ask(Request::TakeFindings(wire::TakeFindings {}));
        let found = taken.and_then(|reply| match reply {
            Reply::Findings(f) => f.findings.into_iter().map(convert::finding_from_wire).collect(),
            _ => Err(Error::invalid("the agent answers a question for findings with something else")),
        });
        found.unwrap_or_else(|error| {
            // This call cannot fail, so the next one that waits tells of it.
            self.pending = Some(error);
            Vec::new()
        })
    }

    fn memory(&self) -> (u64, u64) {
        self.handles.memory()
    }

    fn reopens(&self) -> bool {
        true
    }

    fn reopen(&mut self, lost: Error) -> Result<()> {
        self.connection = self.origin.open(&self.connection, lost)?;
        // The new session has none of the old one's handles. A use of one is refused here.
        self.handles.clear();
        self.fresh.clear();
        self.pending = None;
        Ok(())
    }
}

impl Drop for RemoteDevice {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// A label as the wire carries it.
fn clip(label: &str) -> String {
    let end =
        label.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&e| e <= wire::limits::MAX_NAME);
    label[..end.last().unwrap_or(0)].into()
}
