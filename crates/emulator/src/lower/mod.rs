//! Lowers a resolved naga entry point to [`Code`]. Calls are inlined, values are scalarised, and every value is known to
//! be uniform (equal in all active invocations) or varying.
//!
//! Uniformity is found by assuming the best and lowering again when an assumption breaks: see [`UniformityFacts`].

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
mod regs;
mod stmt;
pub mod types;

use crate::code::{Access, Bin, Builtin, Code, Inst, Label, Reg, RuntimeLength, Tri, Un};
use crate::profile::Arithmetic;
use crate::vm::alu;
use access::AccessPlace;
use flow::Flow;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{Expression, Function, GlobalVariable, Handle, Module, Span, TypeInner};
use regs::Regs;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
pub use tapml_wgsl::Fail;
use types::{Kind, ModuleTypes};

/// Most instructions of one kernel. Inlining can make a small text large.
const MAX_INSTS: usize = 1 << 20;

/// Most calls within calls.
const MAX_DEPTH: usize = 200;

/// Most bytes of registers of one workgroup.
const MAX_REGISTER_BYTES: u64 = 512 << 20;

/// How often uniformity is refined before everything is taken as varying.
const MAX_ROUNDS: usize = 12;

pub(crate) type LowerResult<T> = Result<T, Fail>;

/// Choices that change the code.
#[derive(Clone, Copy)]
pub struct LowerChoices {
    pub arithmetic: Arithmetic,
    pub subgroup_size: u32,
    /// No instruction may overwrite its own operands: checks look at them afterwards.
    pub keep_operands: bool,
}

/// What was learnt about uniformity so far. Only grows.
#[derive(Default)]
struct UniformityFacts {
    /// Variables that hold different values in different invocations.
    varying: HashSet<u32>,
    /// Loops, switches and functions that invocations leave at different times.
    divergent: HashSet<u32>,
    everything: bool,
    changed: bool,
}

impl UniformityFacts {
    fn is_varying(&self, id: u32) -> bool {
        self.everything || self.varying.contains(&id)
    }

    fn is_divergent(&self, id: u32) -> bool {
        self.everything || self.divergent.contains(&id)
    }

    fn set_varying(&mut self, id: u32) {
        self.changed |= !self.everything && self.varying.insert(id);
    }

    fn set_divergent(&mut self, id: u32) {
        self.changed |= !self.everything && self.divergent.insert(id);
    }
}

/// A value: registers of its scalars, or a place in memory.
#[derive(Clone)]
enum Val {
    Regs(Vec<Reg>),
    Place(AccessPlace),
}

/// A variable of the function or private address space.
struct Variable {
    id: u32,
    first: Reg,
    count: u32,
    varying: bool,
    /// Number of enclosing constructs at the variable's home.
    home_depth: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CtrlKind {
    Function,
    If,
    Loop,
    Switch,
}

/// An enclosing control construct.
#[derive(Clone)]
struct Ctrl {
    kind: CtrlKind,
    id: u32,
    /// Whether some invocations may be inactive inside that are active around it.
    divergent: bool,
    /// Mask of invocations that left by `break` or `return`.
    leave: Option<Reg>,
    /// Mask of invocations that wait for the loop's `continuing` part.
    wait: Option<Reg>,
    /// Where a loop continues; equals `end` for the others.
    next: Label,
    end: Label,
    /// Whether an invocation may have left from inside.
    left: bool,
}

/// One inlined function.
struct InlineFrame<'a> {
    function: &'a Function,
    info: &'a FunctionInfo,
    flow: Rc<Flow>,
    values: Vec<Option<Val>>,
    arguments: Vec<Val>,
    variables: Vec<usize>,
    result: Option<usize>,
    /// Registers and the position after which they are free.
    owned: Vec<(u32, Reg)>,
    /// Index of the function's entry in the control stack.
    ctrl: usize,
}

/// The lowering of one entry point under given facts.
struct Lower<'a> {
    types: ModuleTypes<'a>,
    info: &'a ModuleInfo,
    choices: LowerChoices,
    facts: UniformityFacts,
    code: Code,
    regs: Regs,
    constants: HashMap<u32, Reg>,
    known: HashMap<Reg, u32>,
    accesses: HashMap<Access, u32>,
    lengths: HashMap<RuntimeLength, u32>,
    builtins: HashMap<Builtin, Reg>,
    globals: HashMap<Handle<GlobalVariable>, AccessPlace>,
    flows: HashMap<Option<Handle<Function>>, Rc<Flow>>,
    variables: Vec<Variable>,
    ctrl: Vec<Ctrl>,
    frames: Vec<InlineFrame<'a>>,
    /// Registers taken by the expression or statement in work.
    fresh: Vec<Reg>,
    span: Span,
    next_id: u32,
    /// Whether nothing of the function follows the statement in work.
    tail: bool,
    /// Position of the statement in work.
    position: u32,
    /// Instruction that the last placed label stands before.
    last_label: usize,
}

/// Lowers the entry point at `index`.
pub fn lower(module: &Module, info: &ModuleInfo, index: usize, choices: LowerChoices) -> LowerResult<Code> {
    let mut facts = UniformityFacts::default();
    for round in 0..=MAX_ROUNDS {
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

    fn finish(mut self) -> LowerResult<Code> {
        (self.code.uniform_regs, self.code.varying_regs) = self.regs.counts();
        let lanes = self.code.workgroup_size.iter().product::<u32>();
        let bytes = u64::from(self.code.varying_regs) * u64::from(lanes.max(1)) * 4;
        if bytes > MAX_REGISTER_BYTES {
            return self.fail(format!("variables and values of {bytes} bytes in one workgroup"));
        }
        let mut constants: Vec<_> = self.constants.iter().map(|(&bits, &reg)| (reg, bits)).collect();
        constants.sort_unstable();
        self.code.constants = constants;
        let mut builtins: Vec<_> = self.builtins.iter().map(|(&b, &reg)| (b, reg)).collect();
        builtins.sort_unstable_by_key(|&(_, reg)| reg);
        self.code.builtins = builtins;
        Ok(self.code)
    }

    fn fail<T>(&self, what: impl Into<String>) -> LowerResult<T> {
        Err(Fail { span: self.span, what: what.into() })
    }

    /// Turns the absence of something that valid modules have into an error instead of a panic.
    fn need<T>(&self, value: Option<T>, what: &str) -> LowerResult<T> {
        value.ok_or_else(|| Fail { span: self.span, what: what.into() })
    }

    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn frame(&self) -> &InlineFrame<'a> {
        self.frames.last().expect("a frame exists while code is lowered")
    }

    fn frame_mut(&mut self) -> &mut InlineFrame<'a> {
        self.frames.last_mut().expect("a frame exists while code is lowered")
    }

    /// The type of an expression of the current function.
    fn type_of(&self, expression: Handle<Expression>) -> &'a TypeInner {
        let frame = self.frame();
        frame.info[expression].ty.inner_with(&self.types.module.types)
    }

    fn kind_of(&self, expression: Handle<Expression>) -> LowerResult<Kind> {
        let kind = self.types.kind(self.type_of(expression));
        self.need(kind, "a value that is no scalar, vector or matrix of 16- or 32-bit scalars")
    }

    fn emit(&mut self, inst: Inst) -> LowerResult<()> {
        if self.code.insts.len() >= MAX_INSTS {
            return self.fail(format!("a kernel of more than {MAX_INSTS} instructions after inlining"));
        }
        self.code.insts.push(inst);
        self.code.spans.push(self.span);
        Ok(())
    }

    fn label(&mut self) -> Label {
        self.code.labels.push(u32::MAX);
        self.code.labels.len() as Label - 1
    }

    fn place_label(&mut self, label: Label) {
        self.last_label = self.code.insts.len();
        self.code.labels[label as usize] = self.last_label as u32;
    }

    /// A uniform register with this value, set before the kernel starts.
    fn constant(&mut self, bits: u32) -> Reg {
        if let Some(&reg) = self.constants.get(&bits) {
            return reg;
        }
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

    fn un(&mut self, op: Un, a: Reg) -> LowerResult<Reg> {
        if let Some(&x) = self.known.get(&a) {
            return Ok(self.constant(alu::fold_un(op, x)));
        }
        let d = self.take(a.is_varying(), 1);
        self.emit(Inst::Un { op, d, a })?;
        Ok(d)
    }

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

    fn tri(&mut self, op: Tri, a: Reg, b: Reg, c: Reg) -> LowerResult<Reg> {
        if let (Some(&x), Some(&y), Some(&z)) = (self.known.get(&a), self.known.get(&b), self.known.get(&c)) {
            return Ok(self.constant(alu::fold_tri(op, x, y, z)));
        }
        let d = self.take(a.is_varying() || b.is_varying() || c.is_varying(), 1);
        self.emit(Inst::Tri { op, d, a, b, c })?;
        Ok(d)
    }

    fn copy(&mut self, s: Reg) -> LowerResult<Reg> {
        let d = self.take(s.is_varying(), 1);
        self.emit(Inst::Copy { d, s })?;
        Ok(d)
    }

    /// A register that lives as long as the kernel and holds a built-in value.
    fn builtin(&mut self, builtin: Builtin) -> Reg {
        let size = self.code.workgroup_size;
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
