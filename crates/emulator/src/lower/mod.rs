//! Lowers a resolved naga entry point to [`Code`]. Calls are inlined, values are scalarised, and every value is known to
//! be uniform (equal in all active invocations) or varying.
//!
//! Uniformity is found by assuming the best and lowering again when an assumption breaks: see [`UniformityFacts`].
//!
//! The lowering relies on naga's validation: constructs that a valid module does not have give an error, not a panic. Pointers never
//! become values in registers. A pointer expression denotes a place (`access.rs`), and a call passes places to the inlined body.

mod access;
mod call;
mod control;
mod convert;
mod cooperative;
mod expr;
mod flow;
mod math;
mod memory;
mod pack;
mod place;
mod regs;
mod stmt;
pub mod types;

use crate::code::{Access, Bin, Builtin, Code, Inst, Label, Reg, RuntimeLength, Tri, Un};
use crate::profile::Arithmetic;
use crate::vm::alu;
use flow::Flow;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{Expression, Function, GlobalVariable, Handle, Module, Span, TypeInner};
use place::AccessPlace;
use regs::Regs;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
pub use tapml_wgsl::Fail;
use types::{Kind, ModuleTypes};

/// Most instructions of one kernel. Inlining can make a small text large.
/// The limit bounds time and memory for hostile text.
const MAX_INSTS: usize = 1 << 20;

/// Most calls within calls.
/// WGSL has no recursion; the limit bounds the stack of the lowering, which recurses per call.
const MAX_DEPTH: usize = 200;

/// Most bytes of registers of one workgroup.
/// Each thread that runs workgroups allocates the registers of one.
const MAX_REGISTER_BYTES: u64 = 512 << 20;

/// How often uniformity is refined before everything is taken as varying.
/// The last round assumes nothing, so it cannot break an assumption.
const MAX_ROUNDS: usize = 12;

/// A result whose error is the construct that the emulator does not support, with its place.
pub(crate) type LowerResult<T> = Result<T, Fail>;

/// Choices that change the code.
///
/// They belong to the device, not to the kernel.
#[derive(Clone, Copy)]
pub struct LowerChoices {
    /// How the profile computes floats.
    pub arithmetic: Arithmetic,
    /// Invocations of a subgroup, a constant of the code.
    pub subgroup_size: u32,
    /// No instruction may overwrite its own operands: checks look at them afterwards.
    pub keep_operands: bool,
}

/// What was learnt about uniformity so far. Only grows.
///
/// The ids are those of [`Lower::id`], which each round deals out in the same order.
#[derive(Default)]
struct UniformityFacts {
    /// Variables that hold different values in different invocations.
    varying: HashSet<u32>,
    /// Loops, switches and functions that invocations leave at different times.
    divergent: HashSet<u32>,
    /// Takes all variables as varying and all constructs as divergent.
    everything: bool,
    /// Whether this round learnt something, so that its code must be thrown away.
    changed: bool,
}

impl UniformityFacts {
    /// Whether a variable needs a value per invocation.
    fn is_varying(&self, id: u32) -> bool {
        self.everything || self.varying.contains(&id)
    }

    /// Whether a construct needs masks.
    fn is_divergent(&self, id: u32) -> bool {
        self.everything || self.divergent.contains(&id)
    }

    /// Records that a variable differs between invocations.
    fn set_varying(&mut self, id: u32) {
        self.changed |= !self.everything && self.varying.insert(id);
    }

    /// Records that invocations leave a construct at different times.
    fn set_divergent(&mut self, id: u32) {
        self.changed |= !self.everything && self.divergent.insert(id);
    }
}

/// A value: registers of its scalars, or a place in memory.
/// Composite values are lists of scalars in the order of their leaves; matrices go column by column.
#[derive(Clone)]
enum Val {
    Regs(Vec<Reg>),
    Place(AccessPlace),
}

/// A variable of the function or private address space.
///
/// Its scalars are in consecutive registers of one class, so that an index can be added to the first.
struct Variable {
    /// Its number among [`UniformityFacts`].
    id: u32,
    /// The register of its first scalar.
    first: Reg,
    /// Number of scalars.
    count: u32,
    /// Class of the registers, as this round assumes it.
    varying: bool,
    /// Number of enclosing constructs at the variable's home.
    home_depth: usize,
}

/// What a construct is; `break` and `continue` look for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CtrlKind {
    Function,
    If,
    Loop,
    Switch,
}

/// An enclosing control construct.
///
/// Masks exist only where `divergent` is set, and are taken when the construct opens.
#[derive(Clone)]
struct Ctrl {
    kind: CtrlKind,
    /// Its number among [`UniformityFacts`]; 0 for an `if`.
    id: u32,
    /// Whether some invocations may be inactive inside that are active around it.
    divergent: bool,
    /// Mask of invocations that left by `break` or `return`.
    leave: Option<Reg>,
    /// Mask of invocations that wait for the loop's `continuing` part.
    wait: Option<Reg>,
    /// Where a loop continues; equals `end` for the others.
    next: Label,
    /// Where the construct is left.
    end: Label,
    /// Whether an invocation may have left from inside.
    left: bool,
}

/// One inlined function.
///
/// The vectors are indexed by naga's handles into the function's arenas.
struct InlineFrame<'a> {
    /// The function whose body is lowered.
    function: &'a Function,
    /// Types and uses of its expressions, from naga's validation.
    info: &'a FunctionInfo,
    /// Lifetimes of its values, shared by all calls of the function.
    flow: Rc<Flow>,
    /// Values of expressions; `None` until they are computed.
    values: Vec<Option<Val>>,
    /// Values or places that the call passes.
    arguments: Vec<Val>,
    /// For each local variable its index in [`Lower::variables`].
    variables: Vec<usize>,
    /// The variable that `return` writes, as an index in [`Lower::variables`].
    result: Option<usize>,
    /// Registers and the position after which they are free.
    owned: Vec<(u32, Reg)>,
    /// Index of the function's entry in the control stack.
    ctrl: usize,
}

/// The lowering of one entry point under given facts.
///
/// The tables of [`Code`] have maps beside them, so that equal entries are made once.
struct Lower<'a> {
    /// Layouts of the module's types.
    types: ModuleTypes<'a>,
    /// What naga's validation found out about the module.
    info: &'a ModuleInfo,
    choices: LowerChoices,
    /// What earlier rounds learnt, and this one adds.
    facts: UniformityFacts,
    /// The code so far.
    code: Code,
    /// Which registers are in use.
    regs: Regs,
    /// The uniform register of each constant, by its bits.
    constants: HashMap<u32, Reg>,
    /// The inverse of `constants`: what is in it is folded.
    known: HashMap<Reg, u32>,
    accesses: HashMap<Access, u32>,
    lengths: HashMap<RuntimeLength, u32>,
    /// Registers of the built-in values in use.
    builtins: HashMap<Builtin, Reg>,
    /// Places of the global variables that the entry point uses.
    globals: HashMap<Handle<GlobalVariable>, AccessPlace>,
    /// Facts of each function that was inlined; `None` stands for the entry point.
    flows: HashMap<Option<Handle<Function>>, Rc<Flow>>,
    /// Variables of all frames, also of those that ended.
    variables: Vec<Variable>,
    /// Constructs around the statement in work, outermost first, over all frames.
    ctrl: Vec<Ctrl>,
    /// Calls around the statement in work, innermost last.
    frames: Vec<InlineFrame<'a>>,
    /// Registers taken by the expression or statement in work.
    fresh: Vec<Reg>,
    /// Place of the statement or expression in work, given to its instructions and to errors.
    span: Span,
    /// The last id that was dealt out.
    next_id: u32,
    /// Whether nothing of the function follows the statement in work.
    tail: bool,
    /// Position of the statement in work.
    position: u32,
    /// Instruction that the last placed label stands before.
    last_label: usize,
}

/// Lowers the entry point at `index`.
///
/// # Errors
///
/// Constructs that the emulator does not know, and kernels that exceed one of its limits.
pub fn lower(module: &Module, info: &ModuleInfo, index: usize, choices: LowerChoices) -> LowerResult<Code> {
    let mut facts = UniformityFacts::default();
    for round in 0..=MAX_ROUNDS {
        // Facts only grow, so earlier rounds end by themselves in all but deeply chained kernels.
        facts.everything = round == MAX_ROUNDS;
        facts.changed = false;
        let mut lower = Lower::new(module, info, choices, facts);
        lower.entry(index)?;
        if !lower.facts.changed {
            return lower.finish();
        }
        facts = lower.facts;
    }
    Err(Fail { span: Span::UNDEFINED, what: "uniformity did not settle".into() })
}

impl<'a> Lower<'a> {
    /// A lowering that has emitted nothing. `facts` are those of the rounds before.
    fn new(
        module: &'a Module,
        info: &'a ModuleInfo,
        choices: LowerChoices,
        facts: UniformityFacts,
    ) -> Lower<'a> {
        Lower {
            types: ModuleTypes::new(module),
            info,
            choices,
            facts,
            code: Code { subgroup_size: choices.subgroup_size, ..Code::default() },
            regs: Regs::default(),
            constants: HashMap::new(),
            known: HashMap::new(),
            accesses: HashMap::new(),
            lengths: HashMap::new(),
            builtins: HashMap::new(),
            globals: HashMap::new(),
            flows: HashMap::new(),
            variables: Vec::new(),
            ctrl: Vec::new(),
            frames: Vec::new(),
            fresh: Vec::new(),
            span: Span::UNDEFINED,
            next_id: 0,
            tail: false,
            position: 0,
            last_label: 0,
        }
    }

    /// The code with its tables in a fixed order: maps iterate in a random one.
    fn finish(mut self) -> LowerResult<Code> {
        (self.code.uniform_regs, self.code.varying_regs) = self.regs.counts();
        let lanes = self.code.workgroup_size.iter().product::<u32>();
        let bytes = u64::from(self.code.varying_regs) * u64::from(lanes.max(1)) * 4;
        // Every workgroup in flight has its registers: a hostile kernel must not take all memory.
        if bytes > MAX_REGISTER_BYTES {
            return self.fail(format!("variables and values of {bytes} bytes in one workgroup"));
        }
        let mut constants: Vec<_> = self.constants.iter().map(|(&bits, &reg)| (reg, bits)).collect();
        // In order, so that equal kernels have equal code.
        constants.sort_unstable();
        self.code.constants = constants;
        let mut builtins: Vec<_> = self.builtins.iter().map(|(&b, &reg)| (b, reg)).collect();
        builtins.sort_unstable_by_key(|&(_, reg)| reg);
        self.code.builtins = builtins;
        self.code.find_runs();
        Ok(self.code)
    }

    /// Refuses the construct at the current place.
    fn fail<T>(&self, what: impl Into<String>) -> LowerResult<T> {
        Err(Fail { span: self.span, what: what.into() })
    }

    /// Turns the absence of something that valid modules have into an error instead of a panic.
    fn need<T>(&self, value: Option<T>, what: &str) -> LowerResult<T> {
        value.ok_or_else(|| Fail { span: self.span, what: what.into() })
    }

    /// A number for a variable or construct. The sequence must be the same in every round, since facts name numbers.
    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// The innermost call.
    ///
    /// # Panics
    ///
    /// Outside a body: the entry point's frame is opened before any expression is looked at.
    fn frame(&self) -> &InlineFrame<'a> {
        self.frames.last().expect("a frame exists while code is lowered")
    }

    /// As [`Lower::frame`], for changes.
    fn frame_mut(&mut self) -> &mut InlineFrame<'a> {
        self.frames.last_mut().expect("a frame exists while code is lowered")
    }

    /// The type of an expression of the current function.
    fn type_of(&self, expression: Handle<Expression>) -> &'a TypeInner {
        let frame = self.frame();
        frame.info[expression].ty.inner_with(&self.types.module.types)
    }

    /// The scalar kind of an expression of the current function.
    fn kind_of(&self, expression: Handle<Expression>) -> LowerResult<Kind> {
        let kind = self.types.kind(self.type_of(expression));
        self.need(kind, "a value that is no scalar, vector or matrix of 16- or 32-bit scalars")
    }

    /// Appends an instruction that comes from the current place.
    fn emit(&mut self, inst: Inst) -> LowerResult<()> {
        // Functions are inlined, so that a few that call each other twice grow without bound.
        if self.code.insts.len() >= MAX_INSTS {
            return self.fail(format!("a kernel of more than {MAX_INSTS} instructions after inlining"));
        }
        self.code.insts.push(inst);
        self.code.spans.push(self.span);
        Ok(())
    }

    /// A label that [`Lower::place_label`] must give a place.
    fn label(&mut self) -> Label {
        // A place that no instruction has, until it is placed.
        self.code.labels.push(u32::MAX);
        self.code.labels.len() as Label - 1
    }

    /// The label stands before the next instruction.
    fn place_label(&mut self, label: Label) {
        self.last_label = self.code.insts.len();
        self.code.labels[label as usize] = self.last_label as u32;
    }

    /// A uniform register with this value, set before the kernel starts.
    fn constant(&mut self, bits: u32) -> Reg {
        if let Some(&reg) = self.constants.get(&bits) {
            return reg;
        }
        // The VM sets constants before the first instruction, so no other value may have used the register.
        let reg = self.regs.take_untouched(false);
        self.constants.insert(bits, reg);
        self.known.insert(reg, bits);
        reg
    }

    /// `n` consecutive registers that live until the current expression's value dies.
    fn take(&mut self, varying: bool, n: u32) -> Reg {
        let first = self.regs.take(varying, n);
        self.fresh.extend((0..n).map(|i| first.offset(i)));
        first
    }

    /// The result of an instruction with one operand, folded if the operand is constant.
    fn un(&mut self, op: Un, a: Reg) -> LowerResult<Reg> {
        // Folding uses the VM's own functions, so it changes no bit.
        if let Some(&x) = self.known.get(&a) {
            return Ok(self.constant(alu::fold_un(op, x)));
        }
        let d = self.take(a.is_varying(), 1);
        self.emit(Inst::Un { op, d, a })?;
        Ok(d)
    }

    /// The result of an instruction with two operands. It is varying if one of them is.
    fn bin(&mut self, op: Bin, a: Reg, b: Reg) -> LowerResult<Reg> {
        if let (Some(&x), Some(&y)) = (self.known.get(&a), self.known.get(&b)) {
            return Ok(self.constant(alu::fold_bin(op, x, y)));
        }
        let (op, b) = self.cheaper(op, b);
        let d = self.take(a.is_varying() || b.is_varying(), 1);
        self.emit(Inst::Bin { op, d, a, b })?;
        Ok(d)
    }

    /// Division by a power of two as a shift or mask: hardware has no vector instruction that divides integers.
    fn cheaper(&mut self, op: Bin, b: Reg) -> (Bin, Reg) {
        match (op, self.known.get(&b)) {
            (Bin::DivU, Some(&y)) if y.is_power_of_two() => (Bin::ShrU, self.constant(y.trailing_zeros())),
            (Bin::RemU, Some(&y)) if y.is_power_of_two() => (Bin::And, self.constant(y - 1)),
            _ => (op, b),
        }
    }

    /// The result of an instruction with three operands. It is varying if one of them is.
    fn tri(&mut self, op: Tri, a: Reg, b: Reg, c: Reg) -> LowerResult<Reg> {
        if let (Some(&x), Some(&y), Some(&z)) = (self.known.get(&a), self.known.get(&b), self.known.get(&c)) {
            return Ok(self.constant(alu::fold_tri(op, x, y, z)));
        }
        let d = self.take(a.is_varying() || b.is_varying() || c.is_varying(), 1);
        self.emit(Inst::Tri { op, d, a, b, c })?;
        Ok(d)
    }

    /// A copy in a register of its own, which survives changes of the source.
    fn copy(&mut self, s: Reg) -> LowerResult<Reg> {
        let d = self.take(s.is_varying(), 1);
        self.emit(Inst::Copy { d, s })?;
        Ok(d)
    }

    /// A register that lives as long as the kernel and holds a built-in value.
    fn builtin(&mut self, builtin: Builtin) -> Reg {
        let size = self.code.workgroup_size;
        // An axis of size 1 has the coordinate 0 everywhere: the value is uniform and folds.
        let only_one = match builtin {
            Builtin::LocalId(axis) => size[axis as usize] == 1,
            Builtin::LocalIndex => size == [1; 3],
            _ => false,
        };
        if only_one {
            return self.constant(0);
        }
        if let Some(&reg) = self.builtins.get(&builtin) {
            return reg;
        }
        let varying = !matches!(builtin, Builtin::WorkgroupId(_) | Builtin::NumWorkgroups(_));
        let reg = self.regs.take_untouched(varying);
        self.builtins.insert(builtin, reg);
        reg
    }
}
