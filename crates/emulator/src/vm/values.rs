//! Running arithmetic and variable instructions over the lanes of registers.
//!
//! Arithmetic is computed for whole chunks, inactive lanes included, since nobody reads what those get. Only assignments look at the
//! mask.

use super::Vm;
use super::alu::{self, Apply, UnGroup};
use super::chunk::{Chunk, ChunkView, RegisterChunks, simd};
use crate::code::{Bin, Inst, Reg, Tri, Un};

/// Instructions that do the same to other registers, one after the other.
#[derive(Clone, Copy)]
struct InstRun<'a> {
    vm: &'a Vm<'a>,
    insts: &'a [Inst],
}

impl Apply for InstRun<'_> {
    #[inline(always)]
    fn unary(self, f: impl Fn(u32) -> u32) {
        for inst in self.insts {
            let Inst::Un { d, a, .. } = *inst else { continue };
            let (low, high) = self.vm.range(d);
            let (d, a) = (self.vm.operand(d, high), self.vm.operand(a, high));
            for i in low..high {
                d.set(i, a.get(i).map(&f));
            }
        }
    }

    #[inline(always)]
    fn binary(self, f: impl Fn(u32, u32) -> u32) {
        for inst in self.insts {
            let Inst::Bin { d, a, b, .. } = *inst else { continue };
            let (low, high) = self.vm.range(d);
            let (d, a, b) = (self.vm.operand(d, high), self.vm.operand(a, high), self.vm.operand(b, high));
            for i in low..high {
                d.set(i, a.get(i).zip(b.get(i), &f));
            }
        }
    }

    #[inline(always)]
    fn ternary(self, f: impl Fn(u32, u32, u32) -> u32) {
        for inst in self.insts {
            let Inst::Tri { d, a, b, c, .. } = *inst else { continue };
            let (low, high) = self.vm.range(d);
            let (d, a) = (self.vm.operand(d, high), self.vm.operand(a, high));
            let (b, c) = (self.vm.operand(b, high), self.vm.operand(c, high));
            for i in low..high {
                d.set(i, a.get(i).zip3(b.get(i), c.get(i), &f));
            }
        }
    }
}

simd! { fn un_float<'a>(isa: Isa, op: Un, on: InstRun<'a>) { alu::un_float(op, on) } }
simd! { fn un_int<'a>(isa: Isa, op: Un, on: InstRun<'a>) { alu::un_int(op, on) } }
simd! { fn bin_float<'a>(isa: Isa, op: Bin, on: InstRun<'a>) { alu::bin_float(op, on) } }
simd! { fn bin_int<'a>(isa: Isa, op: Bin, on: InstRun<'a>) { alu::bin_int(op, on) } }
simd! { fn tri<'a>(isa: Isa, op: Tri, on: InstRun<'a>) { alu::tri(op, on) } }

/// Not compiled per instruction set: the time is spent in the library.
fn un_math(op: Un, on: InstRun<'_>) {
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
    /// The chunks of a register below `high`, which lies within the workgroup.
    #[inline(always)]
    fn operand(&self, reg: Reg, high: usize) -> RegisterChunks<'_> {
        RegisterChunks::new(self.view(reg), high)
    }

    /// Runs instructions that compute registers from registers, all of them like the first.
    #[inline(always)]
    pub(super) fn compute(&self, insts: &[Inst]) {
        let on = InstRun { vm: self, insts };
        match on.insts.first() {
            Some(&Inst::Bin { op, .. }) => {
                if alu::is_int(op) {
                    bin_int(self.isa, op, on)
                } else {
                    bin_float(self.isa, op, on)
                }
            }
            Some(&Inst::Un { op, .. }) => match alu::group(op) {
                UnGroup::Float => un_float(self.isa, op, on),
                UnGroup::Math => un_math(op, on),
                UnGroup::Int => un_int(self.isa, op, on),
            },
            Some(&Inst::Tri { op, .. }) => tri(self.isa, op, on),
            _ => {
                for inst in insts {
                    match *inst {
                        Inst::Copy { d, s } => self.copy(d, s),
                        Inst::Assign { d, s } => self.assign(d, s),
                        _ => {}
                    }
                }
            }
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
