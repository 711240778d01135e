//! Atomic operations on storage and workgroup memory, lane by lane in order.
//!
//! WGSL's atomics are relaxed. Storage words are changed by the CPU's atomic instructions, since other threads run other workgroups.

use super::Vm;
use super::env::{BufferView, Env};
use crate::code::{AtomicOp, Mem, Reg};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The word after the operation. `compare` matters to [`AtomicOp::CompareExchange`] only.
fn combine(op: AtomicOp, old: u32, value: u32, compare: u32) -> u32 {
    let (a, b) = (old as i32, value as i32);
    match op {
        AtomicOp::Load => old,
        AtomicOp::Store | AtomicOp::Exchange => value,
        AtomicOp::Add => old.wrapping_add(value),
        AtomicOp::Sub => old.wrapping_sub(value),
        AtomicOp::And => old & value,
        AtomicOp::Or => old | value,
        AtomicOp::Xor => old ^ value,
        AtomicOp::MinI => a.min(b) as u32,
        AtomicOp::MaxI => a.max(b) as u32,
        AtomicOp::MinU => old.min(value),
        AtomicOp::MaxU => old.max(value),
        AtomicOp::CompareExchange => {
            if old == compare {
                value
            } else {
                old
            }
        }
    }
}

/// Changes a word of workgroup memory, which one thread alone touches; gives the old value.
fn on_shared(word: &Cell<u32>, op: AtomicOp, value: u32, compare: u32) -> u32 {
    word.replace(combine(op, word.get(), value, compare))
}

/// Changes a word of a buffer and gives the old value.
fn on_storage(word: &AtomicU32, op: AtomicOp, value: u32, compare: u32) -> u32 {
    // A loop of compare and exchange serves all operations alike.
    let update = |old: u32| Some(combine(op, old, value, compare));
    match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update) {
        // The closure never declines; the second arm is there for the type.
        Ok(old) | Err(old) => old,
    }
}

impl Vm<'_> {
    /// `regs`: result, index, value, and the value compared with.
    /// Lanes act in order, so that the old values are those of a sequence of operations.
    pub(super) fn atomic(&self, env: &Env<'_>, op: AtomicOp, regs: [Reg; 4], access: u32) {
        let access = &self.code.accesses[access as usize];
        let address = self.address(env, access);
        let [d, at, value, compare] = regs.map(|r| self.view(r));
        for lane in self.active.lanes() {
            let i = address.resolve(at.lane(lane)) as usize;
            let (v, c) = (value.lane(lane), compare.lane(lane));
            // An address past the end gives 0 and changes nothing; clamped indices do not reach it.
            let old = match access.mem {
                Mem::Workgroup => self.shared.get(i).map(|w| on_shared(w, op, v, c)),
                Mem::Binding(b) => match env.buffers[b as usize] {
                    BufferView::Write(words) => words.get(i).map(|w| on_storage(w, op, v, c)),
                    // WGSL has no atomics in read-only buffers; a load is all that could be meant.
                    BufferView::Read(words) => words.get(i).copied(),
                },
            };
            d.set_lane(lane, old.unwrap_or(0));
        }
    }
}
