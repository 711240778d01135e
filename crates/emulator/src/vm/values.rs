//! Running arithmetic and variable instructions over the lanes of registers.
//!
//! Arithmetic is computed for whole chunks, inactive lanes included, since nobody reads what those get. Only assignments look at the
//! mask.

use super::Vm;
use super::alu::{self, Apply, UnGroup};
use super::chunk::{Chunk, ChunkView, simd};
use crate::code::{Bin, Inst, Reg, Tri, Un};

/// Operands and the chunks to compute.
///
/// Instructions with fewer operands repeat one.
#[derive(Clone, Copy)]
struct Lanes<'a> {
    /// The result.
    d: ChunkView<'a>,
    a: ChunkView<'a>,
    b: ChunkView<'a>,
    c: ChunkView<'a>,
    /// First chunk.
    low: usize,
    /// One past the last chunk.
    high: usize,
}

impl Apply for Lanes<'_> {
    #[inline(always)]
    fn unary(self, f: impl Fn(u32) -> u32) {
        for i in self.low..self.high {
            self.d.set(i, self.a.get(i).map(&f));
        }
    }

    #[inline(always)]
    fn binary(self, f: impl Fn(u32, u32) -> u32) {
        for i in self.low..self.high {
            self.d.set(i, self.a.get(i).zip(self.b.get(i), &f));
        }
    }

    #[inline(always)]
    fn ternary(self, f: impl Fn(u32, u32, u32) -> u32) {
        for i in self.low..self.high {
            self.d.set(i, self.a.get(i).zip3(self.b.get(i), self.c.get(i), &f));
        }
    }
}

simd! { fn un_float<'a>(isa: Isa, op: Un, on: Lanes<'a>) { alu::un_float(op, on) } }
simd! { fn un_int<'a>(isa: Isa, op: Un, on: Lanes<'a>) { alu::un_int(op, on) } }
simd! { fn bin_float<'a>(isa: Isa, op: Bin, on: Lanes<'a>) { alu::bin_float(op, on) } }
simd! { fn bin_int<'a>(isa: Isa, op: Bin, on: Lanes<'a>) { alu::bin_int(op, on) } }
simd! { fn tri<'a>(isa: Isa, op: Tri, on: Lanes<'a>) { alu::tri(op, on) } }

/// Not compiled per instruction set: the time is spent in the library.
fn un_math(op: Un, on: Lanes<'_>) {
    alu::un_math(op, on);
}

simd! {
    fn copy<'a>(isa: Isa, d: ChunkView<'a>, s: ChunkView<'a>, low: usize, high: usize) {
        for i in low..high {
            d.set(i, s.get(i));
        }
    }
}

impl Vm<'_> {
    /// The views of an instruction's registers. A uniform result takes one chunk.
    #[inline(always)]
    fn lanes_of(&self, d: Reg, a: Reg, b: Reg, c: Reg) -> Lanes<'_> {
        let (low, high) = self.range(d);
        Lanes { d: self.view(d), a: self.view(a), b: self.view(b), c: self.view(c), low, high }
    }

    /// Runs an instruction that computes registers from registers.
    #[inline(always)]
    pub(super) fn compute(&self, inst: &Inst) {
        match *inst {
            // The third view is not used.
            Inst::Bin { op, d, a, b } => {
                let on = self.lanes_of(d, a, b, b);
                if alu::is_int(op) { bin_int(self.isa, op, on) } else { bin_float(self.isa, op, on) }
            }
            Inst::Un { op, d, a } => {
                let on = self.lanes_of(d, a, a, a);
                match alu::group(op) {
                    UnGroup::Float => un_float(self.isa, op, on),
                    UnGroup::Math => un_math(op, on),
                    UnGroup::Int => un_int(self.isa, op, on),
                }
            }
            Inst::Tri { op, d, a, b, c } => tri(self.isa, op, self.lanes_of(d, a, b, c)),
            Inst::Copy { d, s } => self.copy(d, s),
            _ => {}
        }
    }

    /// Overwrites inactive lanes too, so `d` must be fresh or the mask full.
    pub(super) fn copy(&self, d: Reg, s: Reg) {
        let (low, high) = self.range(d);
        copy(self.isa, self.view(d), self.view(s), low, high);
    }

    /// A value to a variable, in active lanes.
    #[inline(always)]
    pub(super) fn assign(&self, d: Reg, s: Reg) {
        if self.active.full || !d.is_varying() {
            // A uniform variable is assigned only where all lanes are active.
            return self.copy(d, s);
        }
        let (to, from) = (self.view(d), self.view(s));
        for i in self.active.low..self.active.high {
            to.set(i, from.get(i).blend(to.get(i), self.active.chunk(i)));
        }
    }

    /// Reads an element of a variable; each lane has an index of its own unless `at` is uniform.
    pub(super) fn var_read(&self, d: Reg, base: Reg, at: Reg, scale: u32, bound: u32) {
        let at = self.view(at);
        // The index is clamped here, since variables have no memory behind them.
        let pick = |index: u32| base.offset(index.min(bound - 1) * scale);
        if !at.varying {
            return self.copy(d, pick(at.get(0).0[0]));
        }
        let to = self.view(d);
        for i in self.active.low..self.active.high {
            let index = at.get(i);
            let out = std::array::from_fn(|k| self.view(pick(index.0[k])).get(i).0[k]);
            to.set(i, Chunk(out));
        }
    }

    /// Writes an element of a variable in active lanes.
    pub(super) fn var_write(&self, base: Reg, at: Reg, scale: u32, bound: u32, s: Reg) {
        let at = self.view(at);
        let pick = |index: u32| base.offset(index.min(bound - 1) * scale);
        if !at.varying {
            return self.assign(pick(at.get(0).0[0]), s);
        }
        let from = self.view(s);
        for lane in self.active.lanes() {
            self.view(pick(at.lane(lane))).set_lane(lane, from.lane(lane));
        }
    }
}
