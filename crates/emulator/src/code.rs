//! The instruction set of the emulator: what a WGSL entry point is lowered to. Data only.

mod operations;

pub use operations::{AtomicOp, Bin, Collective, Gather, Scan, Tri, Un};

use naga::Span;

/// Lanes that one chunk of a register holds.
pub const LANES: usize = 16;

/// A register: one 32-bit scalar for every invocation of a workgroup.
///
/// A *uniform* register holds one value that all active invocations share and costs one chunk; a *varying* register
/// holds a value per invocation. Floats are held as their bits, `f16` as the bits of the equal `f32`, booleans as 0 or
/// all ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Reg(u32);

impl Reg {
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
    #[inline(always)]
    pub fn offset(self, n: u32) -> Reg {
        Reg(self.0 + n)
    }
}

/// Memory that instructions address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mem {
    /// A storage or uniform binding.
    Binding(u32),
    /// The memory of the workgroup.
    Workgroup,
}

/// The number of elements that an index must stay under.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexBound {
    /// Known when the kernel is compiled.
    Static(u32),
    /// The length of a runtime-sized array: an entry of [`Code::lengths`].
    Runtime(u32),
}

/// How an instruction computes an address: `min(index, bound - 1) * scale + offset`, in units of 4 bytes, or of 2 if `half`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    pub mem: Mem,
    pub scale: u32,
    pub offset: u32,
    pub bound: IndexBound,
    pub half: bool,
    /// Number of consecutive scalars read; stores and atomics take one.
    pub count: u32,
}

/// The length of a runtime-sized array: `(binding size - offset) / stride`, all in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuntimeLength {
    pub binding: u32,
    pub offset: u32,
    pub stride: u32,
}

/// Elements that a lane holds of a matrix of its subgroup.
pub const HELD: u32 = 8;

/// A jump target: an index into [`Code::labels`].
pub type Label = u32;

/// One instruction.
///
/// Values are computed for every lane of every chunk that has an active lane; only [`Inst::Assign`], [`Inst::VarWrite`],
/// stores and atomics look at the mask. This is sound because a value is used only where it was computed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Inst {
    Un {
        op: Un,
        d: Reg,
        a: Reg,
    },
    Bin {
        op: Bin,
        d: Reg,
        a: Reg,
        b: Reg,
    },
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
    Load {
        d: Reg,
        at: Reg,
        access: u32,
    },
    Store {
        s: Reg,
        at: Reg,
        access: u32,
    },
    Atomic {
        op: AtomicOp,
        d: Reg,
        at: Reg,
        access: u32,
        value: Reg,
        compare: Reg,
    },
    Length {
        d: Reg,
        length: u32,
    },
    Ballot {
        d: Reg,
        a: Reg,
    },
    Collective {
        op: Collective,
        scan: Scan,
        half: bool,
        d: Reg,
        a: Reg,
    },
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
    Barrier {
        subgroup: bool,
        storage: bool,
        workgroup: bool,
    },
    /// Checks that a load that must be uniform is reached by all invocations with one address.
    UniformLoad {
        at: Reg,
    },
    Jump {
        to: Label,
    },
    JumpIfZero {
        c: Reg,
        to: Label,
    },
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
    pub fn result(&self) -> Option<Reg> {
        match *self {
            Inst::Un { d, .. } | Inst::Bin { d, .. } | Inst::Tri { d, .. } | Inst::Copy { d, .. } => Some(d),
            _ => None,
        }
    }

    /// Changes what [`Inst::result`] gives.
    pub fn set_result(&mut self, to: Reg) {
        match self {
            Inst::Un { d, .. } | Inst::Bin { d, .. } | Inst::Tri { d, .. } | Inst::Copy { d, .. } => *d = to,
            _ => {}
        }
    }

    /// Whether an instruction that has a [`Inst::result`] reads a register.
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
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub insts: Vec<Inst>,
    /// Source span of each instruction.
    pub spans: Vec<Span>,
    /// Instruction index of each label.
    pub labels: Vec<u32>,
    pub accesses: Vec<Access>,
    pub lengths: Vec<RuntimeLength>,
    /// Uniform registers that hold constants.
    pub constants: Vec<(Reg, u32)>,
    pub builtins: Vec<(Builtin, Reg)>,
    pub uniform_regs: u32,
    pub varying_regs: u32,
    /// Words of workgroup memory.
    pub workgroup_words: u32,
    pub workgroup_size: [u32; 3],
    pub subgroup_size: u32,
    /// Names of variables in memory, with the first word of those in workgroup memory, in order.
    pub names: Vec<(Mem, u32, String)>,
}

impl Code {
    /// The name of the variable that holds a word, and the word's number within it.
    pub fn name(&self, mem: Mem, word: u32) -> (&str, u32) {
        let holds = |&&(of, first, _): &&(Mem, u32, String)| of == mem && first <= word;
        self.names.iter().rev().find(holds).map_or(("memory", word), |(_, first, name)| (name, word - first))
    }
}
