//! A kernel as text, and its arguments.

use tapml_wgsl::{Location, SourceMap};

/// One argument of the printed kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// The address of the range bound to this binding; of its buffer if [`Arg::Offset`] follows.
    Pointer(u32),
    /// Where in the buffer the range begins, in bytes, as an unsigned number of 64 bits. Only OpenCL has it.
    Offset(u32),
    /// The length in bytes of that range, as an unsigned word.
    Bytes(u32),
}

/// A kernel as text, and how to launch it.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The whole text.
    pub text: String,
    /// Name of the kernel in the text.
    pub name: String,
    /// Its arguments in order. Bindings that the entry point does not use have none.
    pub args: Vec<Arg>,
    /// Fewest bytes that each binding of the description must have.
    pub min_sizes: Vec<u32>,
    /// For every line of the text, the line of the WGSL (prelude and text, from 1) that it came from; 0 for none.
    pub lines: Vec<u32>,
    /// Places in the kernel's file.
    pub source: SourceMap,
}

impl Printed {
    /// Where in the kernel's file line `line` (from 1) of the printed text comes from; the nearest line above that came
    /// from anywhere.
    pub fn locate(&self, line: u32) -> Option<Location> {
        let upto = self.lines.get(..line as usize)?;
        let full = upto.iter().rev().copied().find(|&l| l > 0)?;
        Some(self.source.locate_line(full))
    }
}
