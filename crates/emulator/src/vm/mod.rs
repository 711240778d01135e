//! The virtual machine: runs one workgroup at a time, each instruction over the lanes of all its invocations.
//!
//! One thread runs all lanes of a workgroup in step, so a barrier needs nothing and workgroup memory needs no lock. Other threads run
//! other workgroups with machines of their own; they share storage buffers only.

mod active;
pub mod alu;
mod atomic;
pub mod chunk;
mod cooperative;
mod env;
mod fast;
pub mod half;
mod mask;
pub mod memory;
pub mod scalar;
mod subgroup;
#[cfg(test)]
mod tests;
mod values;

use crate::code::{Builtin, Code, Inst, LANES, Reg};
use active::Active;
use chunk::{Chunk, ChunkView, Isa};
pub use env::{BufferView, Env};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Looks at every instruction before and after it runs. [`Unwatched`] compiles to nothing.
///
/// Hooks see the machine as it is between two instructions. They are not called for lanes, but once for the whole workgroup.
pub trait Watch {
    /// Whether the hooks do anything.
    const ON: bool;
    /// Called before a workgroup's first instruction.
    fn start(&mut self, vm: &Vm<'_>, env: &Env<'_>);
    /// Called before an instruction.
    /// Operands have their values; the result is not written.
    fn before_instruction(&mut self, vm: &Vm<'_>, env: &Env<'_>, pc: usize, inst: &Inst);
    /// Called after an instruction.
    /// The mask is the one after the instruction.
    fn after_instruction(&mut self, vm: &Vm<'_>, env: &Env<'_>, pc: usize, inst: &Inst);
}

/// Watches nothing.
pub struct Unwatched;

impl Watch for Unwatched {
    const ON: bool = false;
    fn start(&mut self, _: &Vm<'_>, _: &Env<'_>) {}
    fn before_instruction(&mut self, _: &Vm<'_>, _: &Env<'_>, _: usize, _: &Inst) {}
    fn after_instruction(&mut self, _: &Vm<'_>, _: &Env<'_>, _: usize, _: &Inst) {}
}

/// Why a workgroup did not finish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmStop {
    /// The time of a workgroup ran out at this instruction.
    Deadline { pc: usize },
    /// Another thread failed.
    Elsewhere,
}

/// Loop iterations between two looks at the clock.
/// Asking the clock in each iteration would cost more than a short loop does.
const CLOCK_INTERVAL: u32 = 1024;
/// Looks at the clock before a workgroup may be stopped: one that waits because the machine does something else, or sleeps,
/// has not run for long.
const LOOKS: u32 = 512;

/// Registers, mask and workgroup memory of one running workgroup.
///
/// Registers are `Cell`s, so that an instruction may read and write one register at once.
pub struct Vm<'a> {
    /// What it runs.
    pub code: &'a Code,
    /// One chunk per uniform register, with the same value in all of its lanes.
    uniform: Vec<Cell<Chunk>>,
    /// `chunks` chunks per varying register, one register after the other.
    varying: Vec<Cell<Chunk>>,
    /// Chunks that hold the lanes of a workgroup, at least 1.
    chunks: usize,
    /// Invocations of a workgroup.
    pub lanes: usize,
    /// Which lanes run the next instruction.
    active: Active,
    /// Workgroup memory in words.
    pub shared: Vec<Cell<u32>>,
    /// The workgroup that is running.
    pub workgroup: [u32; 3],
    /// What hot loops are compiled for on this CPU.
    isa: Isa,
    /// Loop iterations and workgroups counted so far; it wraps.
    ticks: u32,
    /// When the clock was first looked at in this workgroup, and how often since.
    watched: Option<(Instant, u32)>,
}

/// Uniform and varying registers of a machine that has ended.
type SpareRegisters = (Vec<Cell<Chunk>>, Vec<Cell<Chunk>>);

thread_local! {
    /// Registers for the thread's next machine: memory from the system would be handed out and taken back for every dispatch.
    static SPARE: Cell<SpareRegisters> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Most chunks of registers that a thread keeps, 1 MiB.
const MOST_SPARE: usize = 1 << 14;

/// So many registers of zeros, in memory that is there if it suffices.
fn zeros(mut spare: Vec<Cell<Chunk>>, count: usize) -> Vec<Cell<Chunk>> {
    spare.clear();
    spare.resize(count, Cell::new(Chunk::ZERO));
    spare
}

impl Drop for Vm<'_> {
    fn drop(&mut self) {
        if self.uniform.capacity() + self.varying.capacity() <= MOST_SPARE {
            // A thread that ends has no place for them any more.
            let spare = (std::mem::take(&mut self.uniform), std::mem::take(&mut self.varying));
            let _ = SPARE.try_with(|place| place.set(spare));
        }
    }
}

impl<'a> Vm<'a> {
    /// A machine for this code. Constants and built-in values that never change are set here.
    pub fn new(code: &'a Code) -> Vm<'a> {
        let lanes = code.workgroup_size.iter().product::<u32>() as usize;
        let chunks = lanes.div_ceil(LANES).max(1);
        let (uniform, varying) = SPARE.try_with(Cell::take).unwrap_or_default();
        let vm = Vm {
            code,
            uniform: zeros(uniform, code.uniform_regs as usize),
            varying: zeros(varying, code.varying_regs as usize * chunks),
            chunks,
            lanes,
            active: Active::new(lanes, chunks),
            shared: vec![Cell::new(0); code.workgroup_words as usize],
            workgroup: [0; 3],
            isa: Isa::detect(),
            ticks: 0,
            watched: None,
        };
        for &(reg, value) in &code.constants {
            vm.view(reg).set(0, Chunk::splat(value));
        }
        for &(builtin, reg) in &code.builtins {
            vm.set_invocation_builtin(builtin, reg);
        }
        vm
    }

    /// Fills a register with a value that belongs to the invocation: x runs fastest in the local index.
    fn set_invocation_builtin(&self, builtin: Builtin, reg: Reg) {
        let [sx, sy, _] = self.code.workgroup_size;
        let view = self.view(reg);
        for lane in 0..self.lanes {
            let l = lane as u32;
            let value = match builtin {
                Builtin::LocalIndex => l,
                Builtin::LocalId(0) => l % sx,
                Builtin::LocalId(1) => l / sx % sy,
                Builtin::LocalId(_) => l / sx / sy,
                Builtin::SubgroupId => l / self.code.subgroup_size,
                Builtin::SubgroupInvocation => l % self.code.subgroup_size,
                Builtin::WorkgroupId(_) | Builtin::NumWorkgroups(_) => return,
            };
            view.set_lane(lane, value);
        }
    }

    /// The chunks of a register.
    #[inline(always)]
    pub fn view(&self, reg: Reg) -> ChunkView<'_> {
        if reg.is_varying() {
            let start = reg.index() * self.chunks;
            ChunkView { chunks: &self.varying[start..start + self.chunks], varying: true }
        } else {
            ChunkView { chunks: &self.uniform[reg.index()..=reg.index()], varying: false }
        }
    }

    /// The chunks that an instruction writing to `d` computes.
    #[inline(always)]
    fn range(&self, d: Reg) -> (usize, usize) {
        if d.is_varying() { (self.active.low, self.active.high) } else { (0, 1) }
    }

    /// The active lanes.
    /// Hooks read it; only control instructions change it.
    pub fn mask(&self) -> &Active {
        &self.active
    }

    /// Runs one workgroup to its end.
    ///
    /// # Errors
    ///
    /// The time of the workgroup ran out, or another thread failed.
    pub fn run<W: Watch>(&mut self, env: &Env<'_>, workgroup: [u32; 3], watch: &mut W) -> Result<(), VmStop> {
        self.start(env, workgroup);
        // Workgroups without loops count too, so that a thread sees soon that another has failed.
        self.count_step(env, 0)?;
        if W::ON {
            watch.start(self, env);
        }
        let code = self.code;
        let mut pc = 0;
        while let Some(inst) = code.insts.get(pc) {
            if W::ON {
                watch.before_instruction(self, env, pc, inst);
            }
            // Hooks are called for each instruction, so that watched ones run alone.
            let run = if W::ON { 1 } else { code.runs.get(pc).map_or(1, |&run| run as usize) };
            let jump = match inst {
                Inst::Un { .. }
                | Inst::Bin { .. }
                | Inst::Tri { .. }
                | Inst::Copy { .. }
                | Inst::Assign { .. } => {
                    self.compute(&code.insts[pc..pc + run]);
                    None
                }
                Inst::Load { .. } | Inst::Store { .. } | Inst::Index { .. } => {
                    self.access(env, inst);
                    None
                }
                // After the hook before it, and without the one after: nothing happened.
                Inst::End => return Ok(()),
                Inst::Back { to } => {
                    self.count_step(env, pc)?;
                    Some(*to)
                }
                // Frequent instructions stand above, so that they are found first.
                _ if inst.is_control() => self.control(inst),
                _ => {
                    self.rare(env, inst);
                    None
                }
            };
            if W::ON {
                watch.after_instruction(self, env, pc, inst);
            }
            pc = match jump {
                Some(label) => code.labels[label as usize] as usize,
                None => pc + run,
            };
        }
        Ok(())
    }

    /// Prepares a workgroup. Registers keep what the last one left: code writes a register before it reads it.
    fn start(&mut self, env: &Env<'_>, workgroup: [u32; 3]) {
        self.workgroup = workgroup;
        self.watched = None;
        self.active.reset();
        // WGSL: workgroup variables are zero at the start of each workgroup.
        for word in &self.shared {
            word.set(0);
        }
        for &(builtin, reg) in &self.code.builtins {
            let value = match builtin {
                Builtin::WorkgroupId(axis) => workgroup[axis as usize],
                Builtin::NumWorkgroups(axis) => env.groups[axis as usize],
                _ => continue,
            };
            self.view(reg).set(0, Chunk::splat(value));
        }
    }

    /// Looks at the clock now and then. Only loops can run without end, so only they and the start of a workgroup call it.
    fn count_step(&mut self, env: &Env<'_>, pc: usize) -> Result<(), VmStop> {
        self.ticks = self.ticks.wrapping_add(1);
        if !self.ticks.is_multiple_of(CLOCK_INTERVAL) {
            return Ok(());
        }
        if env.stop.load(Ordering::Relaxed) {
            return Err(VmStop::Elsewhere);
        }
        let now = Instant::now();
        let (since, looks) = self.watched.get_or_insert((now, 0));
        // Time counts from the first look of this workgroup, not from its start.
        *looks = looks.saturating_add(1);
        if *looks >= LOOKS && now.duration_since(*since) >= env.limit {
            env.stop.store(true, Ordering::Relaxed);
            return Err(VmStop::Deadline { pc });
        }
        Ok(())
    }

    /// Instructions that kernels seldom spend time in.
    fn rare(&mut self, env: &Env<'_>, inst: &Inst) {
        match *inst {
            Inst::VarRead { d, base, at, scale, bound } => self.var_read(d, base, at, scale, bound),
            Inst::VarWrite { base, at, scale, bound, s } => self.var_write(base, at, scale, bound, s),
            Inst::Atomic { op, d, at, access, value, compare } => {
                self.atomic(env, op, [d, at, value, compare], access);
            }
            Inst::Length { d, length } => self.view(d).set(0, Chunk::splat(env.lengths[length as usize])),
            Inst::Ballot { d, a } => self.ballot(d, a),
            Inst::MultiplyAdd { d, a, b, c } => self.multiply_add(d, a, b, c),
            Inst::Collective { op, scan, half, d, a } => self.collective(op, scan, half, d, a),
            Inst::Gather { mode, d, a, lane } => self.gather(mode, d, a, lane),
            _ => {}
        }
    }
}
