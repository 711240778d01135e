//! Statements that are not control flow: stores, atomics, barriers, subgroup operations.
//!
//! Each statement frees the registers that it took and that no value owns. Results of statements, such as that of an atomic, are
//! bound to their expression like emitted values.

use super::place::AccessPlace;
use super::types::{Kind, Leaf};
use super::{Lower, LowerResult, Val};
use crate::code::{AtomicOp, Collective, Gather, Inst, Reg, Scan};
use naga::{
    AtomicFunction, Barrier, Block, CollectiveOperation, Expression, GatherMode, Handle, Statement,
    SubgroupOperation, TypeInner,
};

impl<'a> Lower<'a> {
    /// Lowers the statements of a block.
    ///
    /// The block must be one of the function's own: its facts are found by its address.
    pub(super) fn block(&mut self, block: &'a Block) -> LowerResult<()> {
        let flow = self.frame().flow.clone();
        let facts = self.need(flow.block(block), "a block that was not analysed")?;
        let depth = self.ctrl.len();
        // Stores in this block see the constructs between here and themselves, not those around the home.
        let at_home: Vec<_> = flow.home.iter().enumerate().filter(|&(_, &home)| home == facts.id).collect();
        for (index, _) in at_home {
            let variable = self.frame().variables[index];
            self.variables[variable].home_depth = depth;
        }
        let tail = self.tail;
        let statements = block.span_iter().zip(&facts.positions).enumerate();
        for (index, ((statement, span), &(first, last))) in statements {
            self.span = *span;
            // Only the last statement of a block at the tail is at the tail.
            self.tail = tail && index + 1 == block.len();
            self.position = first;
            let outer = std::mem::take(&mut self.fresh);
            self.statement(statement, first)?;
            let free = std::mem::replace(&mut self.fresh, outer);
            self.regs.free(&free);
            self.free_dead(last);
        }
        self.tail = tail;
        Ok(())
    }

    /// Lowers one statement. `position` is its first position in the function's [`super::flow::Flow`].
    /// Statements that compute kernels do not have, such as stores to images, are refused by name.
    fn statement(&mut self, statement: &'a Statement, position: u32) -> LowerResult<()> {
        match *statement {
            Statement::Emit(ref range) => {
                // Expressions of one `Emit` have a position each.
                for (i, expression) in range.clone().enumerate() {
                    self.compute(expression, position + i as u32)?;
                }
                Ok(())
            }
            Statement::Block(ref block) => self.block(block),
            Statement::If { condition, ref accept, ref reject } => self.branch(condition, accept, reject),
            Statement::Switch { selector, ref cases } => self.switch(selector, cases),
            Statement::Loop { ref body, ref continuing, break_if } => self.repeat(body, continuing, break_if),
            Statement::Break => self.leave(false),
            Statement::Continue => self.leave(true),
            Statement::Return { value } => self.ret(value),
            Statement::Call { function, ref arguments, result } => self.call(function, arguments, result),
            Statement::Store { pointer, value } => self.store_statement(pointer, value),
            Statement::Atomic { pointer, fun, value, result } => self.atomic(pointer, fun, value, result),
            Statement::ControlBarrier(flags) => self.barrier(flags),
            // One thread runs the workgroup in step, so its memory is always in order.
            Statement::MemoryBarrier(_) => Ok(()),
            Statement::WorkGroupUniformLoad { pointer, result } => self.uniform_load(pointer, result),
            Statement::CooperativeStore { target, ref data } => self.store_matrix(target, data),
            Statement::SubgroupBallot { result, predicate } => self.ballot(result, predicate),
            Statement::SubgroupGather { mode, argument, result } => self.gather(mode, argument, result),
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collective(op, collective_op, argument, result)
            }
            ref other => {
                // The debug text begins with the variant's name, which is what the message needs.
                let text = format!("{other:?}");
                let end = text.find([' ', '(', '{']).unwrap_or(text.len());
                self.fail(format!("the statement `{}`", &text[..end]))
            }
        }
    }

    /// `Store`. In naga a store to an atomic is this statement too.
    /// The result of that atomic is not used, but the instruction needs a register for it.
    fn store_statement(&mut self, pointer: Handle<Expression>, value: Handle<Expression>) -> LowerResult<()> {
        let place = self.place(pointer)?;
        let inner = self.pointee(self.type_of(pointer))?;
        let value = self.regs(value)?;
        if let TypeInner::Atomic(_) = inner {
            let (d, compare) = (self.take(true, 1), self.constant(0));
            let (at, access) = self.atomic_place(&place, &inner)?;
            return self.emit(Inst::Atomic { op: AtomicOp::Store, d, at, access, value: value[0], compare });
        }
        self.store(&place, &inner, &value)
    }

    /// Index register and access of an atomic.
    /// WGSL has atomics of `i32` and `u32` only.
    fn atomic_place(&mut self, place: &AccessPlace, inner: &TypeInner) -> LowerResult<(Reg, u32)> {
        let kind = self.types.kind(inner);
        let kind = self.need(kind, "an atomic that is not of 32 bits")?;
        self.atomic_access(place, Leaf { offset: 0, kind })
    }

    /// `atomicLoad`. Its result is varying: another workgroup may write between two lanes.
    pub(super) fn atomic_load(&mut self, place: &AccessPlace, inner: &TypeInner) -> LowerResult<Reg> {
        let (at, access) = self.atomic_place(place, inner)?;
        let (d, zero) = (self.take(true, 1), self.constant(0));
        self.emit(Inst::Atomic { op: AtomicOp::Load, d, at, access, value: zero, compare: zero })?;
        Ok(d)
    }

    /// A read-modify-write. `atomicCompareExchangeWeak` gives the old value and whether it was exchanged.
    /// Signed and unsigned minimum and maximum are different instructions; all others do not look at the sign.
    fn atomic(
        &mut self,
        pointer: Handle<Expression>,
        fun: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> LowerResult<()> {
        let place = self.place(pointer)?;
        let inner = self.pointee(self.type_of(pointer))?;
        let signed = self.kind_of(value)? == Kind::I32;
        // Instructions have all operands; the constant stands for one that is not used.
        let mut compare = self.constant(0);
        let op = match fun {
            AtomicFunction::Add => AtomicOp::Add,
            AtomicFunction::Subtract => AtomicOp::Sub,
            AtomicFunction::And => AtomicOp::And,
            AtomicFunction::ExclusiveOr => AtomicOp::Xor,
            AtomicFunction::InclusiveOr => AtomicOp::Or,
            AtomicFunction::Min => {
                if signed {
                    AtomicOp::MinI
                } else {
                    AtomicOp::MinU
                }
            }
            AtomicFunction::Max => {
                if signed {
                    AtomicOp::MaxI
                } else {
                    AtomicOp::MaxU
                }
            }
            AtomicFunction::Exchange { compare: None } => AtomicOp::Exchange,
            AtomicFunction::Exchange { compare: Some(with) } => {
                compare = self.reg(with)?;
                AtomicOp::CompareExchange
            }
        };
        let value = self.reg(value)?;
        let (at, access) = self.atomic_place(&place, &inner)?;
        let d = self.take(true, 1);
        self.emit(Inst::Atomic { op, d, at, access, value, compare })?;
        let Some(result) = result else { return Ok(()) };
        let mut out = vec![d];
        if op == AtomicOp::CompareExchange {
            out.push(self.bin(crate::code::Bin::Eq, d, compare)?);
        }
        self.define(result, Val::Regs(out));
        Ok(())
    }

    /// `workgroupBarrier`, `storageBarrier` or `subgroupBarrier`.
    /// WGSL has them in uniform control flow only, which the checks look at.
    fn barrier(&mut self, flags: Barrier) -> LowerResult<()> {
        let subgroup = flags == Barrier::SUB_GROUP;
        let (storage, workgroup) = (flags.contains(Barrier::STORAGE), flags.contains(Barrier::WORK_GROUP));
        self.emit(Inst::Barrier { subgroup, storage, workgroup })
    }

    /// `workgroupUniformLoad`: a barrier on both sides of the load, as WGSL defines it.
    fn uniform_load(&mut self, pointer: Handle<Expression>, result: Handle<Expression>) -> LowerResult<()> {
        let place = self.place(pointer)?;
        let inner = self.pointee(self.type_of(pointer))?;
        // No invocation may write before all have read, and none may read before all have written.
        let barrier = Inst::Barrier { subgroup: false, storage: false, workgroup: true };
        self.emit(barrier)?;
        if let TypeInner::Atomic(_) = inner {
            let value = self.atomic_load(&place, &inner)?;
            self.emit(barrier)?;
            self.define(result, Val::Regs(vec![value]));
            return Ok(());
        }
        // Every index must be equal in all invocations, which the check of barriers looks at.
        for dim in &place.dims {
            self.emit(Inst::UniformLoad { at: dim.at })?;
        }
        let value = self.load(&place, &inner, false)?;
        self.emit(barrier)?;
        self.define(result, Val::Regs(value));
        Ok(())
    }

    /// `subgroupBallot`: a `vec4<u32>`, 128 bits for the largest subgroup. Without a predicate it tells the active lanes.
    /// Bit `i` belongs to invocation `i` of the subgroup.
    fn ballot(
        &mut self,
        result: Handle<Expression>,
        predicate: Option<Handle<Expression>>,
    ) -> LowerResult<()> {
        let a = match predicate {
            Some(predicate) => self.reg(predicate)?,
            // True: every active invocation counts.
            None => self.constant(u32::MAX),
        };
        let d = self.take(true, 4);
        self.emit(Inst::Ballot { d, a })?;
        self.define(result, Val::Regs((0..4).map(|i| d.offset(i)).collect()));
        Ok(())
    }

    /// Broadcasts, shuffles and quad operations.
    /// Where the other invocation does not exist or is inactive, the result is the own value: WGSL leaves it open.
    fn gather(
        &mut self,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> LowerResult<()> {
        let (mode, lane) = match mode {
            GatherMode::BroadcastFirst => (Gather::First, None),
            // A broadcast is a shuffle whose lane is equal in all invocations.
            GatherMode::Broadcast(l) | GatherMode::Shuffle(l) => (Gather::Lane, Some(l)),
            GatherMode::ShuffleDown(l) => (Gather::Down, Some(l)),
            GatherMode::ShuffleUp(l) => (Gather::Up, Some(l)),
            GatherMode::ShuffleXor(l) => (Gather::Xor, Some(l)),
            GatherMode::QuadBroadcast(l) => (Gather::QuadLane, Some(l)),
            GatherMode::QuadSwap(direction) => {
                let direction = self.constant(direction as u32);
                return self.gather_from(Gather::QuadSwap, direction, argument, result);
            }
        };
        let lane = match lane {
            Some(lane) => self.reg(lane)?,
            None => self.constant(0),
        };
        self.gather_from(mode, lane, argument, result)
    }

    /// Gathers each component of a vector by itself.
    fn gather_from(
        &mut self,
        mode: Gather,
        lane: Reg,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> LowerResult<()> {
        let mut out = Vec::new();
        for a in self.regs(argument)? {
            let d = self.take(true, 1);
            self.emit(Inst::Gather { mode, d, a, lane })?;
            out.push(d);
        }
        self.define(result, Val::Regs(out));
        Ok(())
    }

    /// Reductions and scans over a subgroup, component by component.
    /// The order of operands of the instruction is that of the lanes.
    fn collective(
        &mut self,
        op: SubgroupOperation,
        scan: CollectiveOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> LowerResult<()> {
        use SubgroupOperation as S;
        let kind = self.kind_of(argument)?;
        // Booleans and unsigned fall together: `All`, `Any` and the bit operations have no sign.
        let by = |float, signed, unsigned| match kind {
            Kind::F32 | Kind::F16 => float,
            Kind::I32 => signed,
            _ => unsigned,
        };
        let op = match op {
            S::All => Collective::All,
            S::Any => Collective::Any,
            S::Add => by(Collective::AddF, Collective::AddI, Collective::AddI),
            S::Mul => by(Collective::MulF, Collective::MulI, Collective::MulI),
            S::Min => by(Collective::MinF, Collective::MinI, Collective::MinU),
            S::Max => by(Collective::MaxF, Collective::MaxI, Collective::MaxU),
            S::And => Collective::And,
            S::Or => Collective::Or,
            S::Xor => Collective::Xor,
        };
        let scan = match scan {
            CollectiveOperation::Reduce => Scan::Reduce,
            CollectiveOperation::InclusiveScan => Scan::Inclusive,
            CollectiveOperation::ExclusiveScan => Scan::Exclusive,
        };
        let mut out = Vec::new();
        for a in self.regs(argument)? {
            let d = self.take(true, 1);
            self.emit(Inst::Collective { op, scan, half: kind == Kind::F16, d, a })?;
            out.push(d);
        }
        self.define(result, Val::Regs(out));
        Ok(())
    }

    /// Number of words that a workgroup variable takes.
    /// Workgroup memory holds one scalar a word, also an `f16`.
    pub(super) fn workgroup_words(&self, inner: &TypeInner) -> LowerResult<u32> {
        let words = self.types.scalars(inner);
        self.need(words, "a workgroup variable of a type that has no size")
    }
}
