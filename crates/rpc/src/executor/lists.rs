//! Kernels, and lists of commands that run them.
//!
//! Long lists come in several messages, of which all but the last say that more follows. No other list may come
//! between.

use super::requests::{Answer, Execute, Executor, TEXT_BYTES, done};
use crate::wire::limits::MAX_COMMANDS;
use crate::wire::{self, Reply, convert};
use bytes::Bytes;
use tapml_device::{Command, ListId};
use tapml_graph::{Error, Result};

/// What a command of a list counts for.
/// A device keeps labels, bindings and sizes of each.
const COMMAND_BYTES: u64 = 256;

/// Answered, so that the client learns at once whether the kernel compiles.
impl Execute for wire::CreateKernel {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        let id = self.kernel;
        executor.kernels.expect_free(id)?;
        let bytes = TEXT_BYTES * (self.prelude.len() + self.text.len()) as u64;
        executor.expect_room(&self.name, bytes)?;
        let kernel = executor.device.create_kernel(&convert::kernel_from_wire(self)?)?;
        executor.memory += bytes;
        // A kernel that fails to compile leaves its handle free: the client knows, since creating is answered.
        executor.kernels.insert(id, Some((kernel, bytes)));
        done()
    }
}

impl Execute for wire::DestroyKernel {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        if let Some((kernel, bytes)) = executor.kernels.remove(self.kernel)? {
            executor.memory -= bytes;
            executor.device.destroy_kernel(kernel)?;
        }
        Ok(None)
    }
}

/// Not answered: a failure is told with the next answer that tells failures.
impl Execute for wire::Record {
    fn execute(mut self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        let list = self.list;
        // Taken first: after an error the partial list is gone.
        let mut commands = match executor.partial.take() {
            Some((partial, commands)) if partial == list => commands,
            Some((partial, _)) => return Err(Error::invalid(format!("list {list} within list {partial}"))),
            None => Vec::new(),
        };
        commands.append(&mut self.commands);
        if commands.len() > MAX_COMMANDS {
            return Err(Error::unsupported(format!("a list of more than {MAX_COMMANDS} commands")));
        }
        // Nothing is recorded before the last part is here.
        if self.more {
            executor.partial = Some((list, commands));
            return Ok(None);
        }
        executor.lists.expect_free(list)?;
        let bytes = COMMAND_BYTES * commands.len() as u64;
        let made = executor.expect_room("a list", bytes).and_then(|()| record(executor, &commands));
        // A list that could not be made is known as such, so that later uses of it say why.
        executor.lists.insert(list, made.as_ref().ok().map(|&list| (list, bytes)));
        made.map(|_| executor.memory += bytes)?;
        Ok(None)
    }
}

/// Records commands with the device's own handles.
fn record(executor: &mut Executor, commands: &[wire::Command]) -> Result<ListId> {
    let buffer = |id| executor.buffer(id);
    let kernel = |id| executor.kernels.get(id).map(|(kernel, _)| *kernel);
    let convert = |command| convert::command_from_wire(command, buffer, kernel);
    let commands: Vec<Command> = commands.iter().map(convert).collect::<Result<_>>()?;
    executor.device.record(&commands)
}

impl Execute for wire::Replay {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        replay(executor, self.list, &self.symbols)?;
        Ok(None)
    }
}

/// Sets a list going; it does not wait.
fn replay(executor: &mut Executor, list: u32, symbols: &[wire::Symbol]) -> Result<()> {
    let symbols = convert::symbols_from_wire(symbols)?;
    executor.device.replay(executor.lists.get(list)?.0, &symbols)
}

impl Execute for wire::Step {
    const CAPABILITY: Option<&'static str> = Some("steps");

    fn execute(self, executor: &mut Executor, answer: &mut Answer<'_>) -> Result<Option<Reply>> {
        let wire::Step { writes, list, symbols, reads } = self;
        // A step is a batch of one.
        wire::Turns { list, turns: vec![wire::Turn { writes, symbols }], reads }.execute(executor, answer)
    }
}

/// Answered by what the reads give, in one stream of pieces.
impl Execute for wire::Turns {
    const CAPABILITY: Option<&'static str> = Some("turns");

    fn execute(self, executor: &mut Executor, answer: &mut Answer<'_>) -> Result<Option<Reply>> {
        for (at, turn) in (1..).zip(&self.turns) {
            executor.recorder.turn(at);
            turn.writes.iter().try_for_each(|w| executor.write(w.buffer, w.offset, &w.data))?;
            replay(executor, self.list, &turn.symbols)?;
        }
        // Without reads the answer is empty, and comes when all is done.
        let Some((end, reads)) = self.reads.split_last() else {
            executor.device.wait()?;
            return Ok(Some(Reply::Data(wire::Data { data: Bytes::new(), last: true })));
        };
        // Only the last read ends the answer.
        reads.iter().try_for_each(|read| executor.read(read, false, answer))?;
        executor.read(end, true, answer)?;
        Ok(None)
    }
}

impl Execute for wire::DestroyList {
    fn execute(self, executor: &mut Executor, _: &mut Answer<'_>) -> Result<Option<Reply>> {
        if let Some((list, bytes)) = executor.lists.remove(self.list)? {
            executor.memory -= bytes;
            executor.device.destroy_list(list)?;
        }
        Ok(None)
    }
}
