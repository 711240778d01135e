//! Whole programs.
//!
//! A program and its weights come as hashes of blobs. The client sends only those blobs that the agent does not hold.

use super::bounds::{hash, integer, name, symbols};
use super::{Answered, Names, Note, RequestMessage};
use crate::wire::{LoadProgram, RunProgram, UnloadProgram};
use tapml_graph::Result;

impl RequestMessage for LoadProgram {
    const ANSWERED: Answered = Answered::AfterFailures;

    fn check(&self) -> Result<()> {
        // The program itself is checked when its pieces are put together.
        self.pieces.iter().try_for_each(|h| hash(h))?;
        for weight in &self.weights {
            name("weight", &weight.name)?;
            integer("size", weight.size)?;
            weight.pieces.iter().try_for_each(|h| hash(h))?;
        }
        Ok(())
    }

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("load program {}", self.program))
    }

    // A post-mortem reads the program's steps from these blobs.
    fn remember(&self, names: &mut Names, _: usize) {
        names.add_program(self.program, &self.pieces);
    }
}

impl RequestMessage for RunProgram {
    const ANSWERED: Answered = Answered::AfterFailures;

    fn check(&self) -> Result<()> {
        symbols(&self.symbols)?;
        self.inputs.iter().try_for_each(|input| name("input", &input.name))?;
        self.outputs.iter().try_for_each(|output| name("output", output))
    }

    fn note(&self, _: &Names) -> Note {
        Note::Program { program: self.program, symbols: self.symbols.clone() }
    }
}

impl RequestMessage for UnloadProgram {
    const ANSWERED: Answered = Answered::Never;

    fn note(&self, _: &Names) -> Note {
        Note::Text(format!("unload program {}", self.program))
    }

    fn remember(&self, names: &mut Names, _: usize) {
        names.remove_program(self.program);
    }
}
