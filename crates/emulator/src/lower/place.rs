//! Places in memory: a root, an offset and run-time indices.

use super::types::MemoryLayout;
use crate::code::{IndexBound, Mem, Reg};

/// Where a place begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// A variable in registers: an index into the lowering's variables.
    Variable(usize),
    /// Buffer or workgroup memory.
    Memory(Mem),
}

/// One index that is known only when the kernel runs.
///
/// It adds `min(at, bound - 1) * scale` to the place.
#[derive(Clone, Copy)]
pub struct Dim {
    /// The index, taken as unsigned: a negative one counts as too large.
    pub at: Reg,
    /// Layout units between elements.
    pub scale: u32,
    /// Elements that there are.
    pub bound: IndexBound,
}

/// A place: root, offset, and run-time indices, in units of the root's layout.
#[derive(Clone)]
pub struct AccessPlace {
    /// The memory that the place lies in.
    pub root: Root,
    /// Constant part of the distance from the root's start.
    pub offset: u32,
    /// Steps that depend on registers, outermost first.
    pub dims: Vec<Dim>,
}

impl AccessPlace {
    /// The layout of the root's memory.
    /// Only bindings are seen by the host; everything else holds one scalar a word.
    pub fn layout(&self) -> MemoryLayout {
        if matches!(self.root, Root::Memory(Mem::Binding(_))) {
            MemoryLayout::Host
        } else {
            MemoryLayout::Flat
        }
    }
}
