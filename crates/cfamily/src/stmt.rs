//! Statements that are no control flow: stores, calls, atomics, barriers.
//!
//! Order matters here: a statement is written where it stands, and values that it reads are variables by then if they could
//! change. Names in capitals are macros of the dialect's prelude.

use crate::text::{address, bare};
use crate::types::Spelt;
use crate::writer::{WriteResult, Writer};
use naga::{AtomicFunction, Barrier, Block, Expression, Function, Handle, Span, Statement, TypeInner};

impl<'a> Writer<'a> {
    /// Writes the statements of a block.
    ///
    /// Each tells where in the WGSL it stands, for errors and for the lines of the text.
    pub fn block(&mut self, block: &'a Block) -> WriteResult<()> {
        for (statement, span) in block.span_iter() {
            if *span != Span::UNDEFINED {
                // Statements without a place keep that of the one before.
                self.span = *span;
            }
            self.statement(statement)?;
        }
        Ok(())
    }

    /// One statement of any kind.
    fn statement(&mut self, statement: &'a Statement) -> WriteResult<()> {
        match *statement {
            Statement::Emit(ref range) => self.emit(range.clone()),
            Statement::Block(ref block) => {
                self.line("{");
                self.write_nested(block)?;
                self.line("}");
                Ok(())
            }
            Statement::If { condition, ref accept, ref reject } => self.branch(condition, accept, reject),
            Statement::Switch { selector, ref cases } => self.switch(selector, cases),
            Statement::Loop { ref body, ref continuing, break_if } => {
                self.write_loop(body, continuing, break_if)
            }
            Statement::Break => {
                self.line("break;");
                Ok(())
            }
            Statement::Continue => {
                self.line("continue;");
                Ok(())
            }
            Statement::Return { value: None } => {
                self.line("return;");
                Ok(())
            }
            Statement::Return { value: Some(value) } => {
                let value = self.value(value)?;
                self.line(format!("return {};", bare(&value)));
                Ok(())
            }
            Statement::ControlBarrier(flags) => self.barrier(flags),
            Statement::Store { pointer, value } => self.store(pointer, value),
            Statement::Atomic { pointer, ref fun, value, result } => self.atomic(pointer, fun, value, result),
            Statement::WorkGroupUniformLoad { pointer, result } => self.uniform_load(pointer, result),
            Statement::Call { function, ref arguments, result } => self.call(function, arguments, result),
            Statement::SubgroupBallot { result, predicate } => self.ballot(result, predicate),
            Statement::SubgroupGather { mode, argument, result } => self.gather(mode, argument, result),
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collective(op, collective_op, argument, result)
            }
            ref other => {
                let text = format!("{other:?}");
                let name = text.split([' ', '(', '{']).next().unwrap_or_default().to_string();
                self.fail(format!("{name} in a compute kernel"))
            }
        }
    }

    /// A block one step further in.
    ///
    /// The indentation is restored on an error, too.
    pub fn write_nested(&mut self, block: &'a Block) -> WriteResult<()> {
        self.indent += 1;
        let written = self.block(block);
        self.indent -= 1;
        written
    }

    /// An assignment. Components of local vectors are stored by a function; see [`Writer::store_component`].
    /// A store to an atomic is one of the dialect's atomic stores.
    fn store(&mut self, pointer: Handle<Expression>, value: Handle<Expression>) -> WriteResult<()> {
        let value = self.value(value)?;
        // A component of a local vector has no place of its own.
        if self.store_component(pointer, &value)? {
            return Ok(());
        }
        let place = self.value(pointer)?;
        let atomic = match *self.type_of(pointer)? {
            TypeInner::Pointer { base, .. } => matches!(self.types.inner(base), TypeInner::Atomic(_)),
            _ => false,
        };
        if atomic {
            self.line(format!("ATOMIC_STORE({}, {});", bare(&address(&place)), bare(&value)))
        } else {
            self.line(format!("{place} = {};", bare(&value)))
        }
        Ok(())
    }

    /// A call of a function: pointers by address, then the global variables that it uses.
    /// A result gets a variable, as the call must not be repeated.
    fn call(
        &mut self,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> WriteResult<()> {
        let mut texts = Vec::new();
        for &argument in arguments {
            texts.push(match *self.type_of(argument)? {
                TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => {
                    self.pointer_argument(argument)?
                }
                _ => bare(&self.value(argument)?).to_string(),
            });
        }
        // Globals come last, in the order of the callee's parameters.
        texts.extend(self.global_arguments(function));
        let call = format!("{}({})", self.functions[&function], texts.join(", "));
        match result {
            Some(result) => self.define(result, &call),
            None => {
                self.line(format!("{call};"));
                Ok(())
            }
        }
    }

    /// An atomic operation on a word; its result is what was there before.
    ///
    /// A compare-exchange gives that and whether it was the expected value: WGSL's struct of two members.
    fn atomic(
        &mut self,
        pointer: Handle<Expression>,
        fun: &AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> WriteResult<()> {
        let at = address(&self.value(pointer)?);
        let at = bare(&at);
        let kind = self.type_name_of_atomic(pointer)?;
        let value = self.value(value)?;
        let value = bare(&value);
        let name = match fun {
            AtomicFunction::Add => "ADD",
            AtomicFunction::Subtract => "SUB",
            AtomicFunction::And => "AND",
            AtomicFunction::ExclusiveOr => "XOR",
            AtomicFunction::InclusiveOr => "OR",
            AtomicFunction::Min => "MIN",
            AtomicFunction::Max => "MAX",
            AtomicFunction::Exchange { compare: None } => "SWAP",
            AtomicFunction::Exchange { compare: Some(with) } => {
                let with = self.value(*with)?;
                let old = format!("ATOMIC_CAS({at}, {}, {value})", bare(&with));
                let old = self.temporary_of(kind.name(), &old)?;
                // Nobody reads what was there: the exchange alone is written.
                let Some(result) = result else { return Ok(()) };
                return self.define(result, &format!("{{{old}, {old} == {with}}}"));
            }
        };
        let call = format!("ATOMIC_{name}({at}, {value})");
        match result {
            Some(result) => self.define(result, &call),
            None => {
                self.line(format!("{call};"));
                Ok(())
            }
        }
    }

    /// A barrier for the memories that are named.
    ///
    /// # Errors
    /// For a subgroup's barrier in OpenCL C without emulation, and for one of no memory that is known.
    fn barrier(&mut self, flags: Barrier) -> WriteResult<()> {
        let name = match (flags.contains(Barrier::WORK_GROUP), flags.contains(Barrier::STORAGE)) {
            (true, true) => "BOTH",
            (true, false) => "LOCAL",
            (false, true) => "GLOBAL",
            (false, false) if flags == Barrier::SUB_GROUP && self.emulates() => "LOCAL",
            (false, false) if flags == Barrier::SUB_GROUP && !self.is_opencl() => "SUBGROUP",
            (false, false) => return self.fail(format!("the barrier {flags:?} in this dialect")),
        };
        self.line(format!("BARRIER_{name}();"));
        Ok(())
    }

    /// `workgroupUniformLoad`: a load between two barriers, so that all invocations see one value.
    fn uniform_load(&mut self, pointer: Handle<Expression>, result: Handle<Expression>) -> WriteResult<()> {
        self.line("BARRIER_LOCAL();");
        let place = self.value(pointer)?;
        self.define(result, &place)?;
        self.line("BARRIER_LOCAL();");
        Ok(())
    }
}
