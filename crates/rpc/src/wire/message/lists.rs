//! Lists of commands: recorded, run, freed.
//!
//! Handles within commands are not checked here: what they stand for is known to the executor alone.

use super::bounds::{at_most, bounded_list, integer, name, reads, symbols};
use super::{Answered, Names, Note, RequestMessage};
use crate::wire::limits::MAX_BATCH;
use crate::wire::{Command, DestroyList, Record, Replay, Size, Step, Symbol, Turns, Work, Write};
use tapml_graph::{Context, Error, Result};

// How many commands there may be is bounded by the fields of a message, and over several messages by the executor.
impl RequestMessage for Record {
    const ANSWERED: Answered = Answered::Never;

    fn check(&self) -> Result<()> {
        self.commands.iter().try_for_each(command)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("record list {}", self.list))
    }

    fn remember(&self, names: &mut Names, len: usize) {
        names.add_commands(self.list, &self.commands, len);
    }
}

impl RequestMessage for Replay {
    const ANSWERED: Answered = Answered::Never;

    fn check(&self) -> Result<()> {
        symbols(&self.symbols)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Replay { list: self.list, steps: vec![self.symbols.clone()] }
    }
}

// A step ends with reads, which its answer consists of.
impl RequestMessage for Step {
    const ANSWERED: Answered = Answered::AfterFailures;

    fn check(&self) -> Result<()> {
        turn(&self.writes, &self.symbols)?;
        reads(&self.reads)
    }

    fn note(&self, _: &Names) -> Note {
        Note::Replay { list: self.list, steps: vec![self.symbols.clone()] }
    }
}

impl RequestMessage for Turns {
    const ANSWERED: Answered = Answered::AfterFailures;

    fn check(&self) -> Result<()> {
        at_most("turns", self.turns.len(), MAX_BATCH)?;
        self.turns.iter().try_for_each(|one| turn(&one.writes, &one.symbols))?;
        reads(&self.reads)
    }

    fn note(&self, _: &Names) -> Note {
        let turns = self.turns.iter().map(|turn| turn.symbols.clone()).collect();
        Note::Replay { list: self.list, steps: turns }
    }
}

impl RequestMessage for DestroyList {
    const ANSWERED: Answered = Answered::Never;

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("destroy list {}", self.list))
    }

    fn remember(&self, names: &mut Names, _: usize) {
        names.remove_list(self.list);
    }
}

/// The writes in front of a run, and the symbols of the run.
fn turn(writes: &[Write], values: &[Symbol]) -> Result<()> {
    bounded_list("writes", writes.len())?;
    writes.iter().try_for_each(|write| integer("offset", write.offset))?;
    symbols(values)
}

/// A command of any sort.
fn command(command: &Command) -> Result<()> {
    match command.work.as_ref().ok_or_else(|| Error::invalid("a command holds nothing"))? {
        Work::Dispatch(d) => {
            name("label", &d.label)?;
            bounded_list("bindings", d.bindings.len())?;
            d.bindings.iter().try_for_each(|b| integer("offset", b.offset).and(integer("size", b.size)))?;
            [&d.x, &d.y, &d.z].into_iter().try_for_each(size)
        }
        Work::Copy(c) => [&c.src_offset, &c.dst_offset, &c.size].into_iter().try_for_each(size),
        Work::Fill(_) => Ok(()),
    }
    .context(|| "a command".into())
}

/// A size, which must be there although the schema cannot demand it.
fn size(size: &Option<Size>) -> Result<()> {
    let size = size.as_ref().ok_or_else(|| Error::invalid("a size is missing"))?;
    integer("constant", size.constant)?;
    bounded_list("terms", size.terms.len())?;
    size.terms.iter().try_for_each(|t| name("symbol", &t.symbol).and(integer("factor", t.factor)))
}
