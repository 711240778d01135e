//! The instruction set of the emulator: what a WGSL entry point is lowered to. Data only.
//!
//! Instructions name registers, entries of the tables of [`Code`], and labels; none of them owns memory. The lowering writes
//! them, the VM in `crate::vm` runs them, and `crate::check` reads them to name what went wrong.

mod operations;

pub use operations::{AtomicOp, Bin, Collective, Gather, Scan, Tri, Un};

use naga::Span;

/// Lanes that one chunk of a register holds.
/// Sixteen 32-bit lanes are 512 bits: one register of AVX-512, two of AVX2.
pub const LANES: usize = 16;

/// A register: one 32-bit scalar for every invocation of a workgroup.
///
/// A *uniform* register holds one value that all active invocations share and costs one chunk; a *varying* register
/// holds a value per invocation. Floats are held as their bits, `f16` as the bits of the equal `f32`, booleans as 0 or
/// all ones.
///
/// The number of the register is in the low 31 bits, its class in the highest bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Reg(u32);

impl Reg {
    /// The class bit: set for varying registers.
    const VARYING: u32 = 1 << 31;

    /// The varying register `index`.
    pub fn varying(index: u32) -> Reg {
        Reg(index | Reg::VARYING)
    }

    /// The uniform register `index`.
    pub fn uniform(index: u32) -> Reg {
        Reg(index)
    }

    /// Whether the value differs between invocations.
    #[inline(always)]
    pub fn is_varying(self) -> bool {
        self.0 & Reg::VARYING != 0
    }

    /// Index among the registers of its class.
    #[inline(always)]
    pub fn index(self) -> usize {
        (self.0 & !Reg::VARYING) as usize
    }

    /// The `n`-th register after this one, of the same class.
    /// The class bit is kept, since register numbers stay far below 2^31.
    #[inline(always)]
    pub fn offset(self, n: u32) -> Reg {
        Reg(self.0 + n)
    }
}

/// Memory that instructions address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mem {
    /// A storage or uniform binding.
    /// The number is the binding's index in the kernel's description.
    Binding(u32),
    /// The memory of the workgroup.
    Workgroup,
}

/// The number of elements that an index must stay under.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexBound {
    /// Known when the kernel is compiled.
    /// Zero is treated as 1: the index then becomes 0.
    Static(u32),
    /// The length of a runtime-sized array: an entry of [`Code::lengths`].
    Runtime(u32),
}

/// How an instruction computes an address: `min(index, bound - 1) * scale + offset`, in units of 4 bytes, or of 2 if `half`.
///
/// The address counts from the start of the bound range, or of workgroup memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// Which memory is addressed.
    pub mem: Mem,
    /// Address units between neighbouring elements.
    pub scale: u32,
    /// Address of element 0, in address units.
    pub offset: u32,
    /// Elements that the index is clamped to.
    pub bound: IndexBound,
    /// Whether an element is an `f16` of 2 bytes. Workgroup memory never is: it holds one scalar a word.
    pub half: bool,
    /// Number of consecutive scalars read; stores and atomics take one.
    pub count: u32,
}

/// The length of a runtime-sized array: `(binding size - offset) / stride`, all in bytes.
///
/// This is `NRuntime` of the WGSL section on buffer binding and runtime-sized array element counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuntimeLength {
    /// Index of the binding in the kernel's description.
    pub binding: u32,
    /// Bytes of the structure in front of the array.
    pub offset: u32,
    /// Bytes from one element to the next, padding included.
    pub stride: u32,
}

/// Elements that a lane holds of a matrix of its subgroup.
/// A matrix of 16 by 16 has 256 elements, which 32 lanes share equally.
pub const HELD: u32 = 8;

/// A jump target: an index into [`Code::labels`].
pub type Label = u32;

// `Inst` is `Copy` and small: tables that instructions index keep large operands out of it.
/// One instruction.
///
/// Values are computed for every lane of every chunk that has an active lane; only [`Inst::Assign`], [`Inst::VarWrite`],
/// stores and atomics look at the mask. This is sound because a value is used only where it was computed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Inst {
    /// `d = op(a)`.
    Un {
        op: Un,
        d: Reg,
        a: Reg,
    },
    /// `d = op(a, b)`.
    Bin {
        op: Bin,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    /// `d = op(a, b, c)`.
    Tri {
        op: Tri,
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// A value to a fresh register.
    Copy {
        d: Reg,
        s: Reg,
    },
    /// A value to a variable, in active lanes only.
    Assign {
        d: Reg,
        s: Reg,
    },
    /// `d = base[min(at, bound - 1) * scale]`, counting registers.
    VarRead {
        d: Reg,
        base: Reg,
        at: Reg,
        scale: u32,
        bound: u32,
    },
    /// `base[min(at, bound - 1) * scale] = s` in active lanes.
    VarWrite {
        base: Reg,
        at: Reg,
        scale: u32,
        bound: u32,
        s: Reg,
    },
    /// `d = min(a, bound - 1)`.
    Index {
        d: Reg,
        a: Reg,
        bound: IndexBound,
    },
    /// Reads `count` words of the access to `d` and the registers after it.
    Load {
        d: Reg,
        at: Reg,
        access: u32,
    },
    /// Writes one scalar in active lanes.
    Store {
        s: Reg,
        at: Reg,
        access: u32,
    },
    /// Writes the old value to `d`. Lanes act one after another, in order.
    Atomic {
        op: AtomicOp,
        d: Reg,
        at: Reg,
        access: u32,
        value: Reg,
        compare: Reg,
    },
    /// The length of a runtime-sized array: entry `length` of [`Code::lengths`].
    Length {
        d: Reg,
        length: u32,
    },
    /// Bits of the active lanes of the subgroup where `a` holds, to four registers from `d` on.
    Ballot {
        d: Reg,
        a: Reg,
    },
    /// Combines `a` over the active lanes of each subgroup. `half` rounds every partial result to `f16`.
    Collective {
        op: Collective,
        scan: Scan,
        half: bool,
        d: Reg,
        a: Reg,
    },
    /// Reads `a` of another lane of the subgroup, which `mode` and `lane` choose.
    Gather {
        mode: Gather,
        d: Reg,
        a: Reg,
        lane: Reg,
    },
    /// `d = a · b + c` of matrices that subgroups hold, in [`HELD`] registers each.
    MultiplyAdd {
        d: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    /// A barrier does nothing in the VM: one thread runs the whole workgroup in step. Checks count it.
    Barrier {
        subgroup: bool,
        storage: bool,
        workgroup: bool,
    },
    /// Checks that a load that must be uniform is reached by all invocations with one address.
    UniformLoad {
        at: Reg,
    },
    /// Goes on at a label; the mask stays.
    Jump {
        to: Label,
    },
    /// Goes on at a label if the uniform register `c` is false.
    JumpIfZero {
        c: Reg,
        to: Label,
    },
    /// Goes on at a label if no lane is active.
    JumpIfNone {
        to: Label,
    },
    /// Narrows to the lanes where `c`, keeping the others in `save`; jumps if none is left.
    IfBegin {
        c: Reg,
        save: Reg,
        to: Label,
    },
    /// Continues with the saved lanes, saving those that came here; jumps if none is left.
    IfElse {
        save: Reg,
        to: Label,
    },
    /// The lanes in `save` become active beside those that are.
    IfEnd {
        save: Reg,
    },
    /// Clears a mask.
    ClearMask {
        mask: Reg,
    },
    /// Active lanes leave to `mask`.
    Leave {
        mask: Reg,
    },
    /// Lanes where `c` equals `when` leave to `mask`; jumps if none is left.
    LeaveIf {
        c: Reg,
        when: bool,
        mask: Reg,
        to: Label,
    },
    /// Lanes in `mask` come back, and `mask` is cleared.
    Rejoin {
        mask: Reg,
    },
    /// A loop's way back, where the time budget is checked.
    Back {
        to: Label,
    },
    End,
}

impl Inst {
    /// The register that an arithmetic instruction writes.
    /// `None` for loads and control, so that only arithmetic and copies are redirected to variables.
    pub fn result(&self) -> Option<Reg> {
        match *self {
            Inst::Un { d, .. } | Inst::Bin { d, .. } | Inst::Tri { d, .. } | Inst::Copy { d, .. } => Some(d),
            _ => None,
        }
    }

    /// Changes what [`Inst::result`] gives.
    pub fn set_result(&mut self, to: Reg) {
        match self {
            // The same instructions as above.
            Inst::Un { d, .. } | Inst::Bin { d, .. } | Inst::Tri { d, .. } | Inst::Copy { d, .. } => *d = to,
            _ => {}
        }
    }

    /// Whether two instructions do the same to other registers, and neither looks at memory or changes the mask.
    fn is_like(&self, other: &Inst) -> bool {
        match (self, other) {
            (Inst::Un { op: a, .. }, Inst::Un { op: b, .. }) => a == b,
            (Inst::Bin { op: a, .. }, Inst::Bin { op: b, .. }) => a == b,
            (Inst::Tri { op: a, .. }, Inst::Tri { op: b, .. }) => a == b,
            (Inst::Copy { .. }, Inst::Copy { .. }) | (Inst::Assign { .. }, Inst::Assign { .. }) => true,
            _ => false,
        }
    }

    /// Whether an instruction that has a [`Inst::result`] reads a register.
    /// Any other instruction is taken to read every register, which is the safe answer.
    pub fn reads(&self, r: Reg) -> bool {
        match *self {
            Inst::Un { a, .. } | Inst::Copy { s: a, .. } => a == r,
            Inst::Bin { a, b, .. } => a == r || b == r,
            Inst::Tri { a, b, c, .. } => a == r || b == r || c == r,
            _ => true,
        }
    }
}

/// A built-in value that does not change between the workgroups of a dispatch, or that the VM sets per workgroup.
///
/// Ids with an axis count 0, 1, 2 for x, y, z.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Builtin {
    LocalId(u8),
    LocalIndex,
    WorkgroupId(u8),
    NumWorkgroups(u8),
    SubgroupId,
    SubgroupInvocation,
}

/// A compiled kernel.
///
/// `insts` and `spans` have one entry per instruction. All other tables are indexed by what instructions name.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub insts: Vec<Inst>,
    /// Source span of each instruction.
    pub spans: Vec<Span>,
    /// How many instructions from each one on do the same to other registers, such as those of a vector's scalars. The VM
    /// looks up what they do once.
    pub runs: Vec<u32>,
    /// Instruction index of each label.
    /// Every label is placed before the lowering ends.
    pub labels: Vec<u32>,
    /// Addresses of loads, stores and atomics; equal ones share an entry.
    pub accesses: Vec<Access>,
    /// Runtime-sized arrays of the bindings; their lengths are computed once per dispatch.
    pub lengths: Vec<RuntimeLength>,
    /// Uniform registers that hold constants.
    pub constants: Vec<(Reg, u32)>,
    /// Registers that the VM fills before the first instruction.
    pub builtins: Vec<(Builtin, Reg)>,
    /// Number of uniform registers; each takes one chunk.
    pub uniform_regs: u32,
    /// Number of varying registers; each takes one 32-bit word per invocation.
    pub varying_regs: u32,
    /// Words of workgroup memory.
    pub workgroup_words: u32,
    /// Invocations of a workgroup along x, y, z.
    pub workgroup_size: [u32; 3],
    /// Invocations of a subgroup: neighbours by local index.
    pub subgroup_size: u32,
    /// Names of variables in memory, with the first word of those in workgroup memory, in order.
    pub names: Vec<VariableName>,
}

/// The name of a variable in memory.
#[derive(Clone, Debug)]
pub struct VariableName {
    pub mem: Mem,
    /// Its first word.
    pub first: u32,
    pub name: String,
}

impl Code {
    /// Fills [`Code::runs`]. Called when no instruction changes any more.
    pub fn find_runs(&mut self) {
        self.runs = vec![1; self.insts.len()];
        for at in (1..self.insts.len()).rev() {
            if self.insts[at - 1].is_like(&self.insts[at]) {
                self.runs[at - 1] = self.runs[at] + 1;
            }
        }
    }

    /// The name of the variable that holds a word, and the word's number within it.
    /// A word that no variable holds is named `memory`.
    pub fn name(&self, mem: Mem, word: u32) -> (&str, u32) {
        let holds = |variable: &&VariableName| variable.mem == mem && variable.first <= word;
        // The last variable that begins at or before the word, since names are in order.
        let variable = self.names.iter().rev().find(holds);
        variable.map_or(("memory", word), |variable| (&variable.name, word - variable.first))
    }
}
