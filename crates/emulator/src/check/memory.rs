//! Checks of memory accesses: bounds, reads of what nobody wrote, races.
//!
//! Checks run before the access, while memory still holds the state that the access meets.

use super::Watcher;
use super::shadow::{Conflict, Who};
use crate::code::{Access, AtomicOp, Inst, LANES, Mem, Reg};
use crate::vm::memory::BoundAddress;
use crate::vm::{Env, Vm};
use tapml_device::FindingKind;

/// How an instruction touches memory.
/// Atomic accesses race with nothing, and an atomic load counts as a write of its word.
/// A store is `Write`, a load is `Read`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    Read,
    Write,
    Atomic,
}

impl Watcher<'_> {
    /// Reports indices above `last` in active lanes.
    /// `access` is absent for indices into variables, which have no name in memory.
    ///
    /// Each execution of the instruction records one defect, with the number of lanes and the first of them.
    pub(super) fn bounds(&mut self, vm: &Vm<'_>, pc: usize, at: Reg, last: u32, access: Option<&Access>) {
        let active = vm.mask();
        if !self.checks.bounds || active.is_empty() {
            return;
        }
        let view = vm.view(at);
        // One comparison settles most uniform accesses.
        if !view.varying && view.get(0).0[0] <= last {
            return;
        }
        let mut first = None;
        let mut count = 0_u64;
        for c in active.low..active.high {
            // All bits set where the index is too large in an active lane.
            let above = view.get(c).zip(active.chunk(c), |x, m| if x > last { m } else { 0 });
            if above.any_all().0 != 0 {
                let lanes = (0..LANES).filter(|&i| above.0[i] != 0);
                count += lanes.clone().count() as u64;
                first = first.or(lanes.map(|i| c * LANES + i).next());
            }
        }
        if let Some(lane) = first {
            let index = view.lane(lane);
            self.record_defect(vm, FindingKind::OutOfBounds, pc, lane, count, || {
                let length = u64::from(last) + 1;
                // A negative `i32` is a huge unsigned index; the message shows both readings.
                let signed =
                    if index as i32 >= 0 { String::new() } else { format!(" ({} as i32)", index as i32) };
                let of =
                    access.map(|a| format!(" in `{}`", vm.code.name(a.mem, a.offset).0)).unwrap_or_default();
                format!("index {index}{signed} of {length} elements{of}")
            });
        }
    }

    /// Checks a load, store or atomic before it happens.
    /// Bounds are checked here too, since the access clamps the index without a word.
    pub(super) fn memory(&mut self, vm: &Vm<'_>, env: &Env<'_>, pc: usize, inst: &Inst) {
        let (touch, at, access) = match *inst {
            Inst::Load { at, access, .. } => (Touch::Read, at, access),
            Inst::Store { at, access, .. } => (Touch::Write, at, access),
            Inst::Atomic { op: AtomicOp::Load, at, access, .. } => (Touch::Atomic, at, access),
            Inst::Atomic { at, access, .. } => (Touch::Atomic, at, access),
            _ => return,
        };
        let access = vm.code.accesses[access as usize];
        let address = vm.address(env, &access);
        self.bounds(vm, pc, at, address.last, Some(&access));
        match access.mem {
            Mem::Workgroup => self.workgroup(vm, pc, touch, at, access, address),
            Mem::Binding(binding) => self.storage(vm, pc, touch, at, access, (address, binding)),
        }
    }

    /// Shadows workgroup memory, in words.
    /// Every word that the access touches is looked at: a load of a vector touches several.
    fn workgroup(
        &mut self,
        vm: &Vm<'_>,
        pc: usize,
        touch: Touch,
        at: Reg,
        access: Access,
        address: BoundAddress,
    ) {
        if !self.checks.race && !self.checks.uninit {
            return;
        }
        let view = vm.view(at);
        for lane in vm.mask().lanes() {
            let who = self.name_invocation(lane, false);
            for k in 0..access.count {
                let word = address.resolve(view.lane(lane)) as usize + k as usize;
                let place = || {
                    let (name, word) = vm.code.name(Mem::Workgroup, word as u32);
                    format!("word {word} of `{name}`")
                };
                let conflict = match touch {
                    Touch::Write => self.shared.write(word, Some(who)),
                    // Without an invocation: atomics do not race.
                    Touch::Atomic => self.shared.write(word, None),
                    Touch::Read => {
                        if self.checks.uninit && !self.shared.is_written(word) {
                            self.report_unwritten(vm, pc, lane, place);
                        }
                        self.shared.read(word, who)
                    }
                };
                self.conflict(vm, pc, touch, who, conflict, place);
            }
        }
    }

    /// Shadows a buffer, in halves of words: an `f16` access touches one, any other two.
    /// Bytes in messages count from the start of the binding.
    fn storage(
        &mut self,
        vm: &Vm<'_>,
        pc: usize,
        touch: Touch,
        at: Reg,
        access: Access,
        (address, binding): (BoundAddress, u32),
    ) {
        let Some(shadow) = self.bindings.get(binding as usize).copied() else { return };
        // Neither unwritten memory nor a race can be found here.
        if shadow.written.is_none() && shadow.accesses.is_none() {
            return;
        }
        let view = vm.view(at);
        let halves = if access.half { 1 } else { 2 };
        for lane in vm.mask().lanes() {
            let who = self.name_invocation(lane, true);
            for k in 0..access.count {
                // The clamped address, which is what the access will touch.
                let unit = address.resolve(view.lane(lane)) as usize + k as usize;
                let half = shadow.first * 2 + unit * halves as usize;
                let name = || vm.code.name(Mem::Binding(binding), 0).0;
                let place = || format!("`{}` at byte {}", name(), unit * 2 * halves as usize);
                if let Some(written) = shadow.written {
                    // Set before others look: a write makes the word known.
                    if touch != Touch::Read {
                        written.set(half, halves);
                    } else if !written.is_set(half, halves) {
                        self.report_unwritten(vm, pc, lane, place);
                    }
                }
                // The first half stands for the whole word; accesses of both widths to one word would need both.
                let conflict = match (shadow.accesses, touch) {
                    (Some(accesses), Touch::Write) => accesses.write(half, who),
                    (Some(accesses), Touch::Read) => accesses.read(half, who),
                    _ => None,
                };
                self.conflict(vm, pc, touch, who, conflict, place);
            }
        }
    }

    /// Reports a read of memory that has no value.
    /// `place` is called only if the report is new.
    fn report_unwritten(&mut self, vm: &Vm<'_>, pc: usize, lane: usize, place: impl FnOnce() -> String) {
        self.record_defect(vm, FindingKind::UninitializedRead, pc, lane, 1, || {
            format!("{} is read before anything wrote to it", place())
        });
    }

    /// Reports a race. Shadows are kept for unwritten memory too, so conflicts are dropped where races are not looked for.
    /// `who` is the invocation that has just touched the place; `conflict` holds the other one.
    fn conflict(
        &mut self,
        vm: &Vm<'_>,
        pc: usize,
        touch: Touch,
        who: Who,
        conflict: Option<Conflict>,
        place: impl FnOnce() -> String,
    ) {
        let Some(conflict) = conflict.filter(|_| self.checks.race) else { return };
        let verb = if touch == Touch::Write { "writes" } else { "reads" };
        let lane = who.lane as usize;
        match conflict {
            Conflict::WithinGroup(other) => self.record_defect(vm, FindingKind::RaceInWorkgroup, pc, lane, 1, || {
                let (place, other) = (place(), other.describe());
                format!("invocation {lane} {verb} {place}, which {other} touched with no barrier between")
            }),
            Conflict::AcrossGroups(other) => self.record_defect(vm, FindingKind::RaceAcrossWorkgroups, pc, lane, 1, || {
                let (place, other) = (place(), other.describe());
                format!("invocation {lane} {verb} {place}, which {other} of another workgroup touched in the same dispatch")
            }),
        }
    }
}
