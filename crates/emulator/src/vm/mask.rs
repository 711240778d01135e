//! The instructions that change which lanes are active.
//!
//! A mask is a register of booleans. Saved masks are ordinary varying registers that the lowering has taken.

use super::Vm;
use super::active::ActiveChunks;
use super::chunk::{Chunk, ChunkView, Isa, simd};
use crate::code::{Inst, Label};
use std::cell::Cell;

/// Changes the active mask and the saved mask `x` in place. The result is what [`Active::measure`] takes.
#[inline(always)]
fn update(
    isa: Isa,
    mask: &[Cell<Chunk>],
    all: &[Cell<Chunk>],
    x: ChunkView<'_>,
    how: FrameKind,
    c: ChunkView<'_>,
) -> ActiveChunks {
    match how {
        FrameKind::Split => split(isa, mask, all, x, c),
        FrameKind::Swap => swap(isa, mask, all, x),
        FrameKind::Join => join(isa, mask, all, x),
        FrameKind::Leave => leave(isa, mask, all, x, c),
    }
}

/// What happens to mask `m` and register `x`, with condition `c`.
enum FrameKind {
    /// `m` keeps the lanes where `c`, `x` gets the others.
    Split,
    /// `m` and `x` change places.
    Swap,
    /// The lanes of `x` come back to `m`.
    Join,
    /// Lanes of `m` where `c` move to `x`.
    Leave,
}

// One pass updates both masks and measures the new one. `missing` gathers lanes that exist and are not active.
macro_rules! mask_loop {
    ($name:ident($m:ident, $x:ident, $c:ident) $body:expr) => {
        simd! {
            fn $name<'a>(isa: Isa, mask: &'a [Cell<Chunk>], all: &'a [Cell<Chunk>], x: ChunkView<'a>, c: ChunkView<'a>) -> ActiveChunks {
                let (mut low, mut high, mut missing) = (usize::MAX, 0, Chunk::ZERO);
                for i in 0..mask.len() {
                    let ($m, $x, $c) = (mask[i].get(), x.get(i), c.get(i));
                    let (new_mask, new_x): (Chunk, Chunk) = $body;
                    mask[i].set(new_mask);
                    x.set(i, new_x);
                    let (any, _) = new_mask.any_all();
                    if any != 0 {
                        low = low.min(i);
                        high = i + 1;
                    }
                    missing = missing.zip3(new_mask, all[i].get(), |sum, m, a| sum | (m ^ a));
                }
                ActiveChunks { low: if high == 0 { 0 } else { low }, high, full: missing.any_all().0 == 0 }
            }
        }
    };
}

mask_loop!(split(m, _x, c)(m.zip(c, |m, c| m & c), m.zip(c, |m, c| m & !c)));
mask_loop!(swap_with(m, x, _c)(x, m));
mask_loop!(join_with(m, x, _c)(m.zip(x, |m, x| m | x), x));
mask_loop!(leave(m, x, c)(m.zip(c, |m, c| m & !c), x.zip(m.zip(c, |m, c| m & c), |x, l| x | l)));
mask_loop!(leave_unless(m, x, c)(m.zip(c, |m, c| m & c), x.zip(m.zip(c, |m, c| m & !c), |x, l| x | l)));
mask_loop!(rejoin(m, x, _c)(m.zip(x, |m, x| m | x), Chunk::ZERO));

/// There is no condition: any view stands in for it.
fn swap(isa: Isa, mask: &[Cell<Chunk>], all: &[Cell<Chunk>], x: ChunkView<'_>) -> ActiveChunks {
    swap_with(isa, mask, all, x, x)
}

/// As [`swap`].
fn join(isa: Isa, mask: &[Cell<Chunk>], all: &[Cell<Chunk>], x: ChunkView<'_>) -> ActiveChunks {
    join_with(isa, mask, all, x, x)
}

impl Inst {
    /// Whether the instruction changes the mask or the flow.
    #[inline(always)]
    pub fn is_control(&self) -> bool {
        matches!(
            self,
            Inst::Jump { .. }
                | Inst::JumpIfZero { .. }
                | Inst::JumpIfNone { .. }
                | Inst::IfBegin { .. }
                | Inst::IfElse { .. }
                | Inst::IfEnd { .. }
                | Inst::ClearMask { .. }
                | Inst::Leave { .. }
                | Inst::LeaveIf { .. }
                | Inst::Rejoin { .. }
        )
    }
}

impl Vm<'_> {
    /// Runs a control instruction; the label to go to, if it jumps.
    pub(super) fn control(&mut self, inst: &Inst) -> Option<Label> {
        let (state, to) = match *inst {
            Inst::Jump { to } => return Some(to),
            // `c` is uniform, so its first lane stands for all.
            Inst::JumpIfZero { c, to } => return (self.view(c).get(0).0[0] == 0).then_some(to),
            Inst::JumpIfNone { to } => return self.active.is_empty().then_some(to),
            Inst::ClearMask { mask } => {
                // All chunks, since lanes outside the active range may have left bits in the register.
                let view = self.view(mask);
                (0..self.chunks).for_each(|c| view.set(c, Chunk::ZERO));
                return None;
            }
            Inst::Leave { mask } => {
                let view = self.view(mask);
                for c in self.active.low..self.active.high {
                    view.set(c, view.get(c).zip(self.active.mask[c].replace(Chunk::ZERO), |x, m| x | m));
                }
                self.active.measure(ActiveChunks { low: 0, high: 0, full: false });
                return None;
            }
            Inst::IfBegin { c, save, to } => (self.update(FrameKind::Split, save, c), Some(to)),
            Inst::IfElse { save, to } => (self.update(FrameKind::Swap, save, save), Some(to)),
            Inst::IfEnd { save } => (self.update(FrameKind::Join, save, save), None),
            Inst::LeaveIf { c, when: true, mask, to } => (self.update(FrameKind::Leave, mask, c), Some(to)),
            Inst::LeaveIf { c, mask, to, .. } => {
                let (x, c) = (self.view(mask), self.view(c));
                (leave_unless(self.isa, &self.active.mask, &self.active.all, x, c), Some(to))
            }
            Inst::Rejoin { mask } => {
                let x = self.view(mask);
                (rejoin(self.isa, &self.active.mask, &self.active.all, x, x), None)
            }
            _ => return None,
        };
        self.active.measure(state);
        // Only an empty mask jumps: nobody would execute what is skipped.
        to.filter(|_| self.active.is_empty())
    }

    /// Updates the mask with a saved one.
    fn update(&self, how: FrameKind, save: crate::code::Reg, c: crate::code::Reg) -> ActiveChunks {
        update(self.isa, &self.active.mask, &self.active.all, self.view(save), how, self.view(c))
    }
}
