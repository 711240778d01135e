//! Checking mode: watches every instruction and reports what a GPU would do silently.
//!
//! Checks change no result. What they find is gathered per thread and merged when the dispatch ends.

pub mod collect;
mod memory;
pub mod shadow;
mod values;

use crate::code::{Inst, Reg};
use crate::options::Checks;
use crate::vm::{Env, Vm, Watch};
use collect::{Entries, FirstOccurrence};
use shadow::{Accesses, Who, WorkgroupShadow, WrittenHalves};
use tapml_device::FindingKind;

/// Shadow of one binding.
///
/// Bindings of one buffer share its tables.
#[derive(Clone, Copy)]
pub struct BindingShadow<'a> {
    /// First word of the binding in its buffer.
    pub first: usize,
    /// Which halves are written; `None` if all are.
    pub written: Option<&'a WrittenHalves>,
    /// Accesses of this dispatch; `None` if nothing writes to the buffer.
    pub accesses: Option<&'a Accesses>,
}

/// Checks the workgroups that one thread runs.
pub struct Watcher<'a> {
    /// What to look for.
    checks: Checks,
    /// One shadow per binding of the kernel.
    bindings: &'a [BindingShadow<'a>],
    /// Shadow of the running workgroup's memory.
    shared: WorkgroupShadow,
    /// Linear index of the running workgroup.
    group: u32,
    /// Barriers passed that order workgroup memory, and storage.
    epochs: [u16; 2],
    /// What was found in all workgroups so far.
    entries: Entries,
}

impl<'a> Watcher<'a> {
    /// A watcher for one dispatch.
    pub fn new(checks: Checks, bindings: &'a [BindingShadow<'a>]) -> Watcher<'a> {
        Watcher {
            checks,
            bindings,
            shared: WorkgroupShadow::default(),
            group: 0,
            epochs: [0; 2],
            entries: Entries::new(),
        }
    }

    /// What was found.
    pub fn finish(self) -> Entries {
        self.entries
    }

    /// Counts a defect. The message is made for the first occurrence only, since it costs more than the check.
    fn record_defect(
        &mut self,
        vm: &Vm<'_>,
        kind: FindingKind,
        pc: usize,
        lane: usize,
        count: u64,
        message: impl FnOnce() -> String,
    ) {
        let new =
            || FirstOccurrence { message: message(), workgroup: vm.workgroup, lane: lane as u32, count: 0 };
        self.entries.entry((kind, pc)).or_insert_with(new).count += count;
    }

    /// An invocation with the epoch of storage or of workgroup memory.
    fn name_invocation(&self, lane: usize, storage: bool) -> Who {
        Who { group: self.group, epoch: self.epochs[usize::from(storage)], lane: lane as u16 }
    }

    /// A barrier begins a new epoch for the memory that it orders.
    fn barrier(&mut self, vm: &Vm<'_>, pc: usize, inst: &Inst) {
        let Inst::Barrier { subgroup, storage, workgroup } = *inst else { return };
        self.uniform_flow(vm, pc, subgroup, "barrier");
        // A subgroup barrier orders only a subgroup; taking it for a whole one errs towards silence.
        self.epochs[0] = self.epochs[0].wrapping_add(u16::from(workgroup || subgroup));
        self.epochs[1] = self.epochs[1].wrapping_add(u16::from(storage || subgroup));
    }

    /// Reports an operation that must be reached by all invocations, of the workgroup or of each subgroup it reaches.
    fn uniform_flow(&mut self, vm: &Vm<'_>, pc: usize, subgroup: bool, what: &str) {
        let active = vm.mask();
        // A full mask is uniform, and an empty one executes nothing.
        if !self.checks.barrier || active.is_empty() || active.full {
            return;
        }
        let size = if subgroup { vm.code.subgroup_size as usize } else { vm.lanes };
        for first in (0..vm.lanes).step_by(size) {
            let lanes = first..(first + size).min(vm.lanes);
            let here: Vec<_> = lanes.clone().filter(|&l| active.is(l)).collect();
            if here.is_empty() || here.len() == lanes.len() {
                continue;
            }
            // One of each is named, so that a reader can compare them.
            let missing = lanes.clone().find(|&l| !active.is(l)).unwrap_or(first);
            self.record_defect(vm, FindingKind::DivergentBarrier, pc, here[0], 1, || {
                let (n, all) = (here.len(), lanes.len());
                format!("{n} of {all} invocations reach this {what}; invocation {} does, invocation {missing} does not", here[0])
            });
        }
    }

    /// Reports a `workgroupUniformLoad` whose index is not the same in all active lanes.
    fn uniform_load(&mut self, vm: &Vm<'_>, pc: usize, at: Reg) {
        let view = vm.view(at);
        let mut lanes = vm.mask().lanes();
        let Some(first) = lanes.next().filter(|_| self.checks.barrier) else { return };
        let other = lanes.find(|&l| view.lane(l) != view.lane(first));
        drop(lanes);
        if let Some(other) = other {
            let (a, b) = (view.lane(first), view.lane(other));
            self.record_defect(vm, FindingKind::DivergentBarrier, pc, other, 1, || {
                format!(
                    "workgroupUniformLoad with index {a} in invocation {first} and {b} in invocation {other}"
                )
            });
        }
    }
}

impl Watch for Watcher<'_> {
    const ON: bool = true;

    fn start(&mut self, vm: &Vm<'_>, env: &Env<'_>) {
        let ([x, y, z], [gx, gy, _]) = (vm.workgroup, env.groups);
        // Wraps in grids of more than 2^32 workgroups, where two could be taken for one.
        self.group = z.wrapping_mul(gy).wrapping_add(y).wrapping_mul(gx).wrapping_add(x);
        self.epochs = [0; 2];
        if self.checks.race || self.checks.uninit {
            self.shared.reset(vm.shared.len());
        }
    }

    fn before_instruction(&mut self, vm: &Vm<'_>, env: &Env<'_>, pc: usize, inst: &Inst) {
        match inst {
            Inst::Load { .. } | Inst::Store { .. } | Inst::Atomic { .. } => self.memory(vm, env, pc, inst),
            Inst::VarRead { at, bound, .. } | Inst::VarWrite { at, bound, .. } => {
                self.bounds(vm, pc, *at, bound.saturating_sub(1), None);
            }
            Inst::Index { a, bound, .. } => self.bounds(vm, pc, *a, vm.last(env, *bound), None),
            Inst::Barrier { .. } => self.barrier(vm, pc, inst),
            Inst::Ballot { .. }
            | Inst::MultiplyAdd { .. }
            | Inst::Collective { .. }
            | Inst::Gather { .. } => {
                self.uniform_flow(vm, pc, true, "subgroup operation");
            }
            Inst::UniformLoad { at } => self.uniform_load(vm, pc, *at),
            _ => {}
        }
    }

    fn after_instruction(&mut self, vm: &Vm<'_>, _: &Env<'_>, pc: usize, inst: &Inst) {
        if self.checks.nonfinite {
            self.values(vm, pc, inst);
        }
    }
}
