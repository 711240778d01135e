//! Expressions: constants, operators, composition, indexing.
//!
//! Values are lists of registers, one per scalar. Composition, swizzles and constant indices rearrange the list and emit nothing.

use super::place::{AccessPlace, Root};
use super::types::Kind;
use super::{Lower, LowerResult, Val};
use crate::code::{Bin, Inst, Reg, Tri, Un};
use naga::{
    Arena, BinaryOperator, Constant, Expression, Handle, Literal, RelationalFunction, Type, TypeInner,
    UnaryOperator,
};
use std::collections::HashSet;

impl<'a> Lower<'a> {
    /// The value of an expression that is computed already, or that needs no computing.
    /// Arguments and variables have values from the start of their function. Everything else that naga emits is computed by
    /// [`Lower::compute`] before it is used.
    pub(super) fn value(&mut self, expression: Handle<Expression>) -> LowerResult<Val> {
        let frame = self.frame();
        // Values are cloned: they are short lists of registers, or places.
        if let Some(value) = &frame.values[expression.index()] {
            return Ok(value.clone());
        }
        let function = frame.function;
        match function.expressions[expression] {
            Expression::Literal(literal) => Ok(Val::Regs(vec![self.literal(literal)?])),
            Expression::Constant(constant) => Ok(Val::Regs(self.global_constant(constant)?)),
            Expression::ZeroValue(ty) => Ok(Val::Regs(self.zero(ty)?)),
            Expression::FunctionArgument(index) => {
                let argument = self.frame().arguments.get(index as usize).cloned();
                self.need(argument, "a missing function argument")
            }
            Expression::LocalVariable(var) => {
                let root = Root::Variable(self.frame().variables[var.index()]);
                Ok(Val::Place(AccessPlace { root, offset: 0, dims: Vec::new() }))
            }
            Expression::GlobalVariable(var) => {
                let place = self.globals.get(&var).cloned();
                Ok(Val::Place(
                    self.need(
                        place,
                        "a global variable of an address space that compute kernels do not have",
                    )?,
                ))
            }
            // Initialisers of variables and local constants are not emitted anywhere.
            _ => Ok(Val::Regs(self.constant_expression(&function.expressions, expression)?)),
        }
    }

    /// The registers of a value.
    /// A place is no value: naga loads from a pointer before the value is used.
    pub(super) fn regs(&mut self, expression: Handle<Expression>) -> LowerResult<Vec<Reg>> {
        match self.value(expression)? {
            Val::Regs(regs) => Ok(regs),
            Val::Place(_) => self.fail("a pointer used as a value"),
        }
    }

    /// The register of a scalar value.
    pub(super) fn reg(&mut self, expression: Handle<Expression>) -> LowerResult<Reg> {
        let regs = self.regs(expression)?;
        self.need(regs.first().copied(), "a scalar without a value")
    }

    /// The constant register of a literal. Abstract numbers become 32-bit ones.
    fn literal(&mut self, literal: Literal) -> LowerResult<Reg> {
        let bits = match literal {
            Literal::F32(x) => x.to_bits(),
            Literal::F16(x) => f32::from(x).to_bits(),
            Literal::U32(x) => x,
            Literal::I32(x) => x as u32,
            Literal::Bool(x) => {
                if x {
                    u32::MAX
                } else {
                    0
                }
            }
            Literal::AbstractInt(x) => x as u32,
            Literal::AbstractFloat(x) => (x as f32).to_bits(),
            Literal::F64(_) | Literal::U64(_) | Literal::I64(_) | Literal::U16(_) | Literal::I16(_) => {
                return self.fail(format!("the literal {literal:?}, which is neither of 32 bits nor f16"));
            }
        };
        Ok(self.constant(bits))
    }

    /// `T()`: every scalar is the constant 0, which is false and `0.0` as well.
    /// All scalars share one constant register.
    fn zero(&mut self, ty: Handle<Type>) -> LowerResult<Vec<Reg>> {
        let count = self.types.scalars(self.types.inner(ty));
        let count = self.need(count, "the zero value of a type that has none")?;
        self.check_size(count)?;
        Ok(vec![self.constant(0); count as usize])
    }

    /// Refuses values that are too large for registers.
    pub(super) fn check_size(&self, count: u32) -> LowerResult<()> {
        if count > super::types::MAX_SCALARS {
            return self.fail(format!(
                "a variable or value of {count} scalars, at most {} are kept per invocation",
                super::types::MAX_SCALARS
            ));
        }
        Ok(())
    }

    /// The value of a `const`.
    fn global_constant(&mut self, constant: Handle<Constant>) -> LowerResult<Vec<Reg>> {
        let init = self.types.module.constants[constant].init;
        self.global_expression(init)
    }

    /// The value of a module-scope constant expression.
    pub(super) fn global_expression(&mut self, expression: Handle<Expression>) -> LowerResult<Vec<Reg>> {
        let module = self.types.module;
        self.constant_expression(&module.global_expressions, expression)
    }

    /// The value of an expression of constants. naga has evaluated operators and built-in functions already.
    fn constant_expression(
        &mut self,
        arena: &'a Arena<Expression>,
        expression: Handle<Expression>,
    ) -> LowerResult<Vec<Reg>> {
        match arena[expression] {
            Expression::Literal(literal) => Ok(vec![self.literal(literal)?]),
            Expression::Constant(constant) => self.global_constant(constant),
            Expression::ZeroValue(ty) => self.zero(ty),
            Expression::Compose { ref components, .. } => {
                let mut out = Vec::new();
                for &component in components {
                    out.extend(self.constant_expression(arena, component)?);
                }
                Ok(out)
            }
            Expression::Splat { size, value } => {
                let value = self.constant_expression(arena, value)?;
                Ok(vec![self.need(value.first().copied(), "an empty splat")?; size as usize])
            }
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.constant_expression(arena, vector)?;
                Ok(pattern[..size as usize].iter().map(|&c| vector[c as usize]).collect())
            }
            ref other => self.fail(format!("{} in a constant", name_of(other))),
        }
    }

    /// Computes an expression at its position in the source.
    /// `position` is its number in the function's facts; values that are not needed behind it give their registers back.
    pub(super) fn compute(&mut self, expression: Handle<Expression>, position: u32) -> LowerResult<()> {
        let function = self.frame().function;
        self.span = function.expressions.get_span(expression);
        // Registers of the statement around it are none of this value's.
        let outer = std::mem::take(&mut self.fresh);
        let value = self.expression(expression)?;
        self.define(expression, value);
        self.fresh = outer;
        self.free_dead(position);
        Ok(())
    }

    /// Binds a value; it owns those of the fresh registers that it is made of, the others are free again.
    /// A register that the value does not contain was taken for a step on the way to it.
    pub(super) fn define(&mut self, expression: Handle<Expression>, value: Val) {
        let kept: HashSet<Reg> = match &value {
            Val::Regs(regs) => regs.iter().copied().collect(),
            Val::Place(place) => place.dims.iter().map(|d| d.at).collect(),
        };
        // What the value shares with others is not in `fresh`, and belongs to them.
        let (owned, free): (Vec<_>, Vec<_>) = self.fresh.drain(..).partition(|r| kept.contains(r));
        self.regs.free(&free);
        let frame = self.frame_mut();
        let dies = frame.flow.dies[expression.index()];
        frame.owned.extend(owned.into_iter().map(|r| (dies, r)));
        frame.values[expression.index()] = Some(value);
    }

    /// Frees the registers of values that no statement after `position` uses.
    pub(super) fn free_dead(&mut self, position: u32) {
        let frame = self.frame_mut();
        let (dead, live): (Vec<_>, Vec<_>) = frame.owned.drain(..).partition(|&(dies, _)| dies <= position);
        frame.owned = live;
        let dead: Vec<_> = dead.into_iter().map(|(_, r)| r).collect();
        self.regs.free(&dead);
    }

    /// Computes an expression from the values of its operands.
    fn expression(&mut self, expression: Handle<Expression>) -> LowerResult<Val> {
        let function = self.frame().function;
        Ok(Val::Regs(match function.expressions[expression] {
            Expression::Compose { ref components, .. } => {
                let mut out = Vec::new();
                for &component in components {
                    out.extend(self.regs(component)?);
                }
                out
            }
            Expression::Access { base, index } => return self.access(base, index),
            Expression::AccessIndex { base, index } => return self.access_constant(base, index),
            Expression::Splat { size, value } => vec![self.reg(value)?; size as usize],
            Expression::Swizzle { size, vector, pattern } => {
                let regs = self.regs(vector)?;
                pattern[..size as usize].iter().map(|&c| regs[c as usize]).collect()
            }
            Expression::Load { pointer } => {
                let place = self.place(pointer)?;
                let inner = self.pointee(self.type_of(pointer))?;
                // Atomics are read by an instruction, so they cannot share.
                let share = self.frame().flow.shares[expression.index()];
                if let TypeInner::Atomic(_) = inner {
                    vec![self.atomic_load(&place, &inner)?]
                } else {
                    self.load(&place, &inner, share)?
                }
            }
            Expression::Unary { op, expr } => self.unary(op, expr)?,
            Expression::Binary { op, left, right } => self.binary(op, left, right)?,
            Expression::Select { condition, accept, reject } => {
                let (c, a, r) = (self.regs(condition)?, self.regs(accept)?, self.regs(reject)?);
                self.zip3(&r, &a, &c, |l, r, a, c| l.tri(Tri::Select, r, a, c))?
            }
            Expression::Relational { fun, argument } => self.relational(fun, argument)?,
            Expression::Math { fun, arg, arg1, arg2, arg3 } => self.math(fun, arg, [arg1, arg2, arg3])?,
            Expression::As { expr, kind, convert } => self.convert(expr, kind, convert)?,
            Expression::ArrayLength(pointer) => vec![self.array_length(pointer)?],
            Expression::CooperativeLoad { ref data, .. } => self.load_matrix(data)?,
            Expression::CooperativeMultiplyAdd { a, b, c } => self.multiply_add([a, b, c])?,
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::ZeroValue(_)
            | Expression::FunctionArgument(_)
            | Expression::LocalVariable(_)
            | Expression::GlobalVariable(_) => return self.value(expression),
            ref other => return self.fail(name_of(other)),
        }))
    }

    /// An element or member with a constant index, of a place or of a value in registers.
    fn access_constant(&mut self, base: Handle<Expression>, index: u32) -> LowerResult<Val> {
        let ty = self.type_of(base);
        match self.value(base)? {
            Val::Place(place) => {
                let inner = self.pointee(ty)?;
                Ok(Val::Place(self.step_constant(place, &inner, index)?))
            }
            Val::Regs(regs) => {
                let (start, count) = self.part(ty, index)?;
                let part = regs.get(start as usize..(start + count) as usize);
                Ok(Val::Regs(self.need(part, "an index past the end of a value")?.to_vec()))
            }
        }
    }

    /// First scalar and number of scalars of one part of a value.
    fn part(&self, ty: &TypeInner, index: u32) -> LowerResult<(u32, u32)> {
        let flat = super::types::MemoryLayout::Flat;
        if let TypeInner::Struct { .. } = ty {
            let member = self.types.member(ty, index, flat);
            let (start, member) = self.need(member, "a struct member that does not exist")?;
            let count = self.types.scalars(self.types.inner(member));
            return Ok((start, self.need(count, "a struct member without a value")?));
        }
        let step = self.types.step(ty, flat);
        let step = self.need(step, "an index into something that has no elements")?;
        Ok((index * step.scale, step.scale))
    }

    /// An element whose index is in a register. Values are copied to consecutive registers first, as [`Inst::VarRead`] needs them.
    /// The copies are read at run-time by index, so the value may not be spread over registers of other values.
    fn access(&mut self, base: Handle<Expression>, index: Handle<Expression>) -> LowerResult<Val> {
        let at = self.reg(index)?;
        let ty = self.type_of(base);
        let regs = match self.value(base)? {
            Val::Place(place) => {
                let inner = self.pointee(ty)?;
                return Ok(Val::Place(self.step(place, &inner, at)?));
            }
            Val::Regs(regs) => regs,
        };
        // All elements have the same number of scalars.
        let (_, count) = self.part(ty, 0)?;
        let bound = regs.len() as u32 / count.max(1);
        if let Some(&index) = self.known.get(&at)
            && index < bound
        {
            return self.access_constant(base, index);
        }
        // One varying scalar makes all of them varying, because an index may pick it.
        let varying = regs.iter().any(|r| r.is_varying());
        let first = self.take(varying, regs.len() as u32);
        for (i, &s) in regs.iter().enumerate() {
            self.emit(Inst::Copy { d: first.offset(i as u32), s })?;
        }
        let mut out = Vec::new();
        for i in 0..count {
            let d = self.take(varying || at.is_varying(), 1);
            self.emit(Inst::VarRead { d, base: first.offset(i), at, scale: count, bound })?;
            out.push(d);
        }
        Ok(Val::Regs(out))
    }

    /// `arrayLength`: uniform, since it depends on the binding only.
    fn array_length(&mut self, pointer: Handle<Expression>) -> LowerResult<Reg> {
        let place = self.place(pointer)?;
        let TypeInner::Array { stride, .. } = self.pointee(self.type_of(pointer))? else {
            return self.fail("arrayLength of something that is no array");
        };
        let length = self.length_slot(&place, stride)?;
        let d = self.take(false, 1);
        self.emit(Inst::Length { d, length })?;
        Ok(d)
    }

    /// Operators with one operand. Negation of an integer wraps.
    fn unary(&mut self, op: UnaryOperator, expr: Handle<Expression>) -> LowerResult<Vec<Reg>> {
        let float = self.kind_of(expr)?.is_float();
        let op = match op {
            UnaryOperator::Negate if float => Un::NegF,
            UnaryOperator::Negate => Un::NegI,
            UnaryOperator::LogicalNot | UnaryOperator::BitwiseNot => Un::Not,
        };
        self.regs(expr)?.into_iter().map(|r| self.un(op, r)).collect()
    }

    /// Operators with two operands, after products of matrices and contraction had their turn.
    /// Comparisons take the kind of the operands, not that of the result.
    fn binary(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> LowerResult<Vec<Reg>> {
        let (lt, rt) = (self.type_of(left), self.type_of(right));
        // A product with a matrix is no product of components.
        if op == BinaryOperator::Multiply
            && let Some(product) = self.matrix_product((left, lt), (right, rt))?
        {
            return Ok(product);
        }
        if let Some(fused) = self.contract(op, left, right)? {
            return Ok(fused);
        }
        let kind = self.kind_of(left)?;
        let (a, b) = (self.regs(left)?, self.regs(right)?);
        let (op, swap) = self.need(operator(op, kind), "an operator that this type does not have")?;
        // Comparisons give booleans, which must not be rounded.
        let arithmetic = matches!(op, Bin::AddF | Bin::SubF | Bin::MulF | Bin::DivF | Bin::RemF);
        self.zip2(&a, &b, |l, a, b| {
            let (a, b) = if swap { (b, a) } else { (a, b) };
            if arithmetic { l.float2(kind, op, a, b) } else { l.bin(op, a, b) }
        })
    }

    /// Applies `f` component by component; a scalar goes with every component of the other.
    /// This is how WGSL writes operators of a vector and a scalar.
    pub(super) fn zip2(
        &mut self,
        a: &[Reg],
        b: &[Reg],
        mut f: impl FnMut(&mut Self, Reg, Reg) -> LowerResult<Reg>,
    ) -> LowerResult<Vec<Reg>> {
        let n = a.len().max(b.len());
        let pick = |x: &[Reg], i: usize| if x.len() == 1 { x[0] } else { x[i] };
        (0..n).map(|i| f(self, pick(a, i), pick(b, i))).collect()
    }

    /// As [`Lower::zip2`] for three operands.
    pub(super) fn zip3(
        &mut self,
        a: &[Reg],
        b: &[Reg],
        c: &[Reg],
        mut f: impl FnMut(&mut Self, Reg, Reg, Reg) -> LowerResult<Reg>,
    ) -> LowerResult<Vec<Reg>> {
        let n = a.len().max(b.len()).max(c.len());
        let pick = |x: &[Reg], i: usize| if x.len() == 1 { x[0] } else { x[i] };
        (0..n).map(|i| f(self, pick(a, i), pick(b, i), pick(c, i))).collect()
    }

    /// `all` and `any` fold a vector to one boolean.
    fn relational(&mut self, fun: RelationalFunction, argument: Handle<Expression>) -> LowerResult<Vec<Reg>> {
        let regs = self.regs(argument)?;
        let (fold, start) = match fun {
            RelationalFunction::All => (Bin::And, u32::MAX),
            RelationalFunction::Any => (Bin::Or, 0),
            // naga has these two beside WGSL's own functions.
            RelationalFunction::IsNan => return regs.into_iter().map(|r| self.un(Un::IsNan, r)).collect(),
            RelationalFunction::IsInf => return regs.into_iter().map(|r| self.un(Un::IsInf, r)).collect(),
        };
        let mut regs = regs.into_iter();
        let mut sum = match regs.next() {
            Some(first) => first,
            None => self.constant(start),
        };
        for r in regs {
            sum = self.bin(fold, sum, r)?;
        }
        Ok(vec![sum])
    }

    /// `a·b + c` as one rounding, where the profile contracts.
    /// A profile that does not contract, integers, and other operators give `None`.
    fn contract(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> LowerResult<Option<Vec<Reg>>> {
        let kind = self.types.kind(self.type_of(left));
        if !self.choices.arithmetic.contract || op != BinaryOperator::Add || !kind.is_some_and(Kind::is_float)
        {
            return Ok(None);
        }
        let function = self.frame().function;
        // Either side may be the product; the left one is taken first.
        for (product, addend) in [(left, right), (right, left)] {
            let Expression::Binary { op: BinaryOperator::Multiply, left: x, right: y } =
                function.expressions[product]
            else {
                continue;
            };
            let is_matrix = |e| matches!(self.type_of(e), TypeInner::Matrix { .. });
            // Its product is a sum of products, not one.
            if is_matrix(x) || is_matrix(y) {
                continue;
            }
            let (x, y, z) = (self.regs(x)?, self.regs(y)?, self.regs(addend)?);
            let kind = self.kind_of(left)?;
            return Ok(Some(self.zip3(&x, &y, &z, |l, x, y, z| l.float3(kind, Tri::Fma, x, y, z))?));
        }
        Ok(None)
    }
}

/// The instruction for an operator on scalars of a kind, and whether its operands change places.
/// `a > b` becomes `b < a`, so that half of the comparisons need no instruction.
fn operator(op: BinaryOperator, kind: Kind) -> Option<(Bin, bool)> {
    use BinaryOperator as O;
    let by = |float: Bin, signed: Bin, unsigned: Bin| match kind {
        Kind::F32 | Kind::F16 => Some(float),
        Kind::I32 => Some(signed),
        Kind::U32 => Some(unsigned),
        Kind::Bool => None,
    };
    // Floats differ from integers here: 0.0 equals -0.0, and NaN equals nothing.
    let float = kind.is_float();
    Some(match op {
        O::Add => (by(Bin::AddF, Bin::Add, Bin::Add)?, false),
        O::Subtract => (by(Bin::SubF, Bin::Sub, Bin::Sub)?, false),
        O::Multiply => (by(Bin::MulF, Bin::Mul, Bin::Mul)?, false),
        O::Divide => (by(Bin::DivF, Bin::DivI, Bin::DivU)?, false),
        O::Modulo => (by(Bin::RemF, Bin::RemI, Bin::RemU)?, false),
        O::Equal => (if float { Bin::EqF } else { Bin::Eq }, false),
        O::NotEqual => (if float { Bin::NeF } else { Bin::Ne }, false),
        O::Less => (by(Bin::LtF, Bin::LtI, Bin::LtU)?, false),
        O::LessEqual => (by(Bin::LeF, Bin::LeI, Bin::LeU)?, false),
        O::Greater => (by(Bin::LtF, Bin::LtI, Bin::LtU)?, true),
        O::GreaterEqual => (by(Bin::LeF, Bin::LeI, Bin::LeU)?, true),
        O::And | O::LogicalAnd => (Bin::And, false),
        O::InclusiveOr | O::LogicalOr => (Bin::Or, false),
        O::ExclusiveOr => (Bin::Xor, false),
        O::ShiftLeft => (Bin::Shl, false),
        O::ShiftRight => (if kind == Kind::I32 { Bin::ShrI } else { Bin::ShrU }, false),
    })
}

/// The construct's name for messages.
pub(super) fn name_of(expression: &Expression) -> String {
    // The debug text begins with the variant's name.
    let text = format!("{expression:?}");
    let end = text.find([' ', '(', '{']).unwrap_or(text.len());
    format!("the construct `{}`", &text[..end])
}
