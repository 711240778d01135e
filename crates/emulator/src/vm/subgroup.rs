//! Subgroup operations. A subgroup is a run of neighbouring lanes; only active lanes take part.
//!
//! Lanes go in order, so sums are formed from the first to the last and are the same on every CPU. WGSL leaves the order open.

use super::chunk::ChunkView;
use super::{Vm, half, scalar};
use crate::code::{Collective, Gather, Reg, Scan};

/// The value that changes nothing, with which exclusive scans begin.
/// Minimum and maximum begin at the far end of their type.
fn identity(op: Collective) -> u32 {
    match op {
        Collective::AddF | Collective::AddI | Collective::Or | Collective::Xor | Collective::Any => 0,
        Collective::MulF => 1.0_f32.to_bits(),
        Collective::MulI => 1,
        Collective::MinF => f32::INFINITY.to_bits(),
        Collective::MaxF => f32::NEG_INFINITY.to_bits(),
        Collective::MinI => i32::MAX as u32,
        Collective::MaxI => i32::MIN as u32,
        Collective::MinU | Collective::And | Collective::All => u32::MAX,
        Collective::MaxU => 0,
    }
}

/// One step of a reduction. Booleans are masks of all bits, so `All` and `Any` are bit operations.
fn combine(op: Collective, x: u32, y: u32) -> u32 {
    let (a, b) = (f32::from_bits(x), f32::from_bits(y));
    match op {
        Collective::AddF => (a + b).to_bits(),
        Collective::MulF => (a * b).to_bits(),
        Collective::MinF => scalar::min(a, b).to_bits(),
        Collective::MaxF => scalar::max(a, b).to_bits(),
        Collective::AddI => x.wrapping_add(y),
        Collective::MulI => x.wrapping_mul(y),
        Collective::MinI => (x as i32).min(y as i32) as u32,
        Collective::MaxI => (x as i32).max(y as i32) as u32,
        Collective::MinU => x.min(y),
        Collective::MaxU => x.max(y),
        Collective::And | Collective::All => x & y,
        Collective::Or | Collective::Any => x | y,
        Collective::Xor => x ^ y,
    }
}

impl Vm<'_> {
    /// First lane and end of each subgroup.
    /// Lanes are counted within the workgroup.
    fn subgroups(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (size, lanes) = (self.code.subgroup_size as usize, self.lanes);
        // The last subgroup of a workgroup may have fewer lanes.
        (0..lanes).step_by(size).map(move |first| (first, (first + size).min(lanes)))
    }

    /// The same value for all active lanes of a subgroup.
    fn set_active(&self, d: ChunkView<'_>, first: usize, end: usize, value: u32) {
        (first..end).filter(|&l| self.active.is(l)).for_each(|l| d.set_lane(l, value));
    }

    /// Bit `i` of component `i / 32` tells whether the predicate holds in active invocation `i`.
    pub(super) fn ballot(&self, d: Reg, a: Reg) {
        let a = self.view(a);
        for (first, end) in self.subgroups() {
            let mut words = [0_u32; 4];
            for lane in (first..end).filter(|&l| self.active.is(l) && a.lane(l) != 0) {
                words[(lane - first) / 32] |= 1 << ((lane - first) % 32);
            }
            for (k, word) in words.into_iter().enumerate() {
                self.set_active(self.view(d.offset(k as u32)), first, end, word);
            }
        }
    }

    /// Reductions and scans. `is_half` rounds after every step, as an `f16` accumulator does.
    /// A reduction writes its result after all lanes were read; a scan may write to the register that it reads, lane by lane.
    pub(super) fn collective(&self, op: Collective, scan: Scan, is_half: bool, d: Reg, a: Reg) {
        let (d, a) = (self.view(d), self.view(a));
        let round = |x: u32| if is_half { half::round(x) } else { x };
        for (first, end) in self.subgroups() {
            let mut sum = identity(op);
            for lane in (first..end).filter(|&l| self.active.is(l)) {
                let before = sum;
                sum = round(combine(op, sum, a.lane(lane)));
                match scan {
                    Scan::Inclusive => d.set_lane(lane, sum),
                    Scan::Exclusive => d.set_lane(lane, before),
                    Scan::Reduce => {}
                }
            }
            if scan == Scan::Reduce {
                self.set_active(d, first, end, sum);
            }
        }
    }

    /// Reads another invocation's value; one that does not exist or is inactive gives the reader's own.
    /// `which` is read per lane, although broadcasts have one value.
    pub(super) fn gather(&self, mode: Gather, d: Reg, a: Reg, lane: Reg) {
        let (d, a, which) = (self.view(d), self.view(a), self.view(lane));
        for (first, end) in self.subgroups() {
            // Without an active lane nothing is written below.
            let leader = (first..end).find(|&l| self.active.is(l)).unwrap_or(first);
            // The largest subgroup. Values are gathered before any is written: `d` and `a` may be one register.
            let mut out = [0; 128];
            for l in first..end {
                let (id, w) = ((l - first) as u32, which.lane(l));
                let source = match mode {
                    Gather::First => (leader - first) as u32,
                    Gather::Lane => w,
                    Gather::Down => id.wrapping_add(w),
                    Gather::Up => id.wrapping_sub(w),
                    Gather::Xor => id ^ w,
                    Gather::QuadLane => (id & !3) | (w & 3),
                    Gather::QuadSwap => id ^ (w + 1),
                };
                // `end` stands for every lane outside the subgroup.
                let there = first + (source as usize).min(end);
                let there = if there < end && self.active.is(there) { there } else { l };
                out[l - first] = a.lane(there);
            }
            for l in (first..end).filter(|&l| self.active.is(l)) {
                d.set_lane(l, out[l - first]);
            }
        }
    }
}
