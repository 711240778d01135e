//! Which lanes are active.

use super::chunk::Chunk;
use crate::code::LANES;
use std::cell::Cell;

/// The active lanes of a workgroup.
///
/// `low`, `high` and `full` are measured after every change, so that instructions need not look at lanes that are not active.
pub struct Active {
    /// One chunk of booleans per chunk of lanes.
    pub(super) mask: Vec<Cell<Chunk>>,
    /// The lanes that exist: the last chunk may have spare ones.
    pub(super) all: Vec<Cell<Chunk>>,
    /// First chunk with an active lane.
    pub low: usize,
    /// One past the last chunk with an active lane; equals `low` if none is active.
    pub high: usize,
    /// Whether every lane that exists is active.
    pub full: bool,
}

/// Where a mask has active lanes.
pub(super) struct ActiveChunks {
    /// The first chunk with one.
    pub low: usize,
    /// The end of the last chunk with one.
    pub high: usize,
    /// Whether all lanes are active.
    pub full: bool,
}

impl Active {
    /// All lanes active.
    pub fn new(lanes: usize, chunks: usize) -> Active {
        let lane = |i: usize| if i < lanes { !0 } else { 0 };
        let chunk = |c: usize| Cell::new(Chunk(std::array::from_fn(|i| lane(c * LANES + i))));
        let all: Vec<_> = (0..chunks).map(chunk).collect();
        Active { mask: all.clone(), all, low: 0, high: chunks, full: true }
    }

    /// All lanes become active.
    pub fn reset(&mut self) {
        self.mask.clone_from(&self.all);
        (self.low, self.high, self.full) = (0, self.all.len(), true);
    }

    /// The mask of one chunk.
    #[inline(always)]
    pub fn chunk(&self, c: usize) -> Chunk {
        self.mask[c].get()
    }

    /// Whether no lane is active.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.low >= self.high
    }

    /// Whether one lane is active.
    #[inline(always)]
    pub fn is(&self, lane: usize) -> bool {
        self.mask[lane / LANES].get().0[lane % LANES] != 0
    }

    /// The active lanes in order.
    pub fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        // Spare lanes of the last chunk are never set, so they are left out.
        (self.low * LANES..self.high * LANES).filter(|&lane| self.is(lane))
    }

    /// Takes over what a mask loop found.
    pub(super) fn measure(&mut self, found: ActiveChunks) {
        (self.low, self.high, self.full) = (found.low, found.high, found.full);
    }
}
