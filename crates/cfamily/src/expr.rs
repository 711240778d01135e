//! Expressions. One that is used once is written where it is used; loads, named and shared ones get a variable.
//!
//! Every text of an operator stands in parentheses, so that it may stand in any other. [`bare`] takes off those that its place
//! makes needless.

use crate::scalar::{Operand, binary, unary};
use crate::text::{address, bare, is_atom};
use crate::types::{Kind, Spelt, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::{AddressSpace, Expression, Handle, Range, RelationalFunction, StorageAccess, Type, TypeInner};

/// Longer texts get a variable of their own.
const MAX_INLINE: usize = 90;

impl<'a> Writer<'a> {
    /// Writes the expressions of an `Emit` statement.
    ///
    /// They are computed where the statement stands. Pointers and short values are only noted as texts.
    pub fn emit(&mut self, range: Range<Expression>) -> WriteResult<()> {
        for handle in range {
            self.span = self.current()?.function.expressions.get_span(handle);
            let text = self.expression(handle)?;
            // A place is repeated as text: C has no variable for it but a pointer.
            if matches!(self.type_of(handle)?, TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. }) {
                self.current_mut()?.values[handle.index()] = Some(text);
            } else if self.needs_variable(handle, &text)? {
                self.define(handle, &text)?;
            } else {
                self.current_mut()?.values[handle.index()] = Some(text);
            }
        }
        Ok(())
    }

    /// Whether an expression gets a variable: it is used several times, long, named, a braced list, or a load.
    ///
    /// A load has to happen where it stands: memory may change before its value is used.
    fn needs_variable(&self, handle: Handle<Expression>, text: &str) -> WriteResult<bool> {
        // A name is as short as a variable would be.
        if is_atom(text) && !matches!(self.current()?.function.expressions[handle], Expression::Load { .. }) {
            return Ok(false);
        }
        let current = self.current()?;
        let many = current.info[handle].ref_count > 1 || text.len() > MAX_INLINE || text.starts_with('{');
        let named = current.function.named_expressions.contains_key(&handle);
        // Memory that nobody writes can be read at any time.
        let timely = match current.function.expressions[handle] {
            Expression::Load { pointer } => !self.is_constant_memory(pointer)?,
            _ => false,
        };
        Ok(many || named || timely)
    }

    /// Whether no invocation can change what a pointer points to.
    /// Loads from such memory may be written where they are used.
    fn is_constant_memory(&self, pointer: Handle<Expression>) -> WriteResult<bool> {
        let space = match *self.type_of(pointer)? {
            TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => space,
            _ => return Ok(false),
        };
        Ok(match space {
            AddressSpace::Uniform => true,
            AddressSpace::Storage { access } => !access.contains(StorageAccess::STORE),
            _ => false,
        })
    }

    /// Gives a value a variable of its own.
    ///
    /// Its name is that of the WGSL if it has one there.
    pub fn define(&mut self, handle: Handle<Expression>, text: &str) -> WriteResult<()> {
        let ty = self.type_name(handle)?;
        let current = self.current_mut()?;
        let name = match current.function.named_expressions.get(&handle) {
            Some(name) => current.names.unique(Some(name)),
            None => format!("e{}", handle.index()),
        };
        current.values[handle.index()] = Some(name.clone());
        self.line(format!("const {ty} {name} = {};", bare(text)));
        Ok(())
    }

    /// The C type of an expression's value.
    pub fn type_name(&mut self, handle: Handle<Expression>) -> WriteResult<String> {
        let resolution = &self.current()?.info[handle].ty;
        if let Some(ty) = resolution.handle() {
            return self.types.name(ty);
        }
        match ValueShape::from_type(self.type_of(handle)?) {
            Some(shape) => Ok(self.types.shape(shape)),
            None => self.fail("a value of a type without a name"),
        }
    }

    /// A variable of a given type with this value.
    pub fn temporary_of(&mut self, ty: &str, text: &str) -> WriteResult<String> {
        let name = self.temporary()?;
        self.line(format!("const {ty} {name} = {};", bare(text)));
        Ok(name)
    }

    /// The text of a value or of a place in memory.
    ///
    /// A braced list gets a variable, as C has no such expression.
    pub fn value(&mut self, handle: Handle<Expression>) -> WriteResult<String> {
        let current = self.current()?;
        if let Some(text) = &current.values[handle.index()] {
            return Ok(text.clone());
        }
        let function = current.function;
        match function.expressions[handle] {
            Expression::FunctionArgument(index) => {
                let name = current.arguments.get(index as usize).cloned();
                let name = self.need(name, "a missing function argument")?;
                Ok(match *self.type_of(handle)? {
                    TypeInner::Pointer { base, .. } if !self.is_dynamic(base) => format!("(*{name})"),
                    TypeInner::ValuePointer { .. } => format!("(*{name})"),
                    _ => name,
                })
            }
            // A local variable is a place itself; arguments and globals are pointers.
            Expression::LocalVariable(local) => {
                let name = current.locals.get(&local).cloned();
                self.need(name, "a local variable that is not declared")
            }
            Expression::GlobalVariable(global) => {
                let name = self.globals[&global].clone();
                let dynamic = self.is_dynamic(self.module.global_variables[global].ty);
                Ok(if dynamic { name } else { format!("(*{name})") })
            }
            _ => {
                let text = self.constant(&function.expressions, handle)?;
                if !text.starts_with('{') {
                    return Ok(text);
                }
                let ty = self.type_name(handle)?;
                self.temporary_of(&ty, &text)
            }
        }
    }

    /// Whether a type is a runtime-sized array.
    pub fn is_dynamic(&self, ty: Handle<Type>) -> bool {
        self.types.is_dynamic_array(self.types.inner(ty))
    }

    /// A value of numbers or booleans with its shape.
    ///
    /// # Errors
    /// For arrays, structs and pointers.
    pub fn operand(&mut self, handle: Handle<Expression>) -> WriteResult<Operand> {
        let shape = ValueShape::from_type(self.type_of(handle)?);
        let shape = self.need(shape, "an operation on a value that is neither number nor boolean")?;
        let text = self.value(handle)?;
        Ok(Operand { text, shape })
    }

    /// The text of an expression that is not written yet.
    fn expression(&mut self, handle: Handle<Expression>) -> WriteResult<String> {
        let function = self.current()?.function;
        match function.expressions[handle] {
            Expression::Compose { ty, ref components } => self.compose(ty, components),
            Expression::Access { base, index } => self.access(base, index),
            Expression::AccessIndex { base, index } => self.access_index(base, index),
            Expression::Splat { size, value } => {
                let value = self.operand(value)?;
                self.splat(size as u8, &value)
            }
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.operand(vector)?;
                let parts: Vec<String> =
                    pattern[..size as usize].iter().map(|&c| vector.component(c as usize)).collect();
                self.vector_of(vector.shape.kind(), &parts)
            }
            Expression::Load { pointer } => self.load(pointer),
            Expression::Unary { op, expr } => {
                let a = self.operand(expr)?;
                let template = unary(op, a.shape.kind());
                let template = self.need(template, "an operator on this type")?;
                self.apply(&format!("{op:?}"), &template, std::slice::from_ref(&a), a.shape.kind())
            }
            Expression::Binary { op, left, right } => {
                let (a, b) = (self.operand(left)?, self.operand(right)?);
                // Products with matrices are no operators of components.
                if let Some(text) = self.matrix_binary(op, &a, &b)? {
                    return Ok(text);
                }
                let found = binary(op, a.shape.kind());
                let (template, out) = self.need(found, "an operator on these types")?;
                self.apply(&format!("{op:?}"), &template, &[a, b], out)
            }
            Expression::Select { condition, accept, reject } => self.select(condition, accept, reject),
            Expression::Relational { fun, argument } => self.relational(fun, argument),
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let mut operands = vec![self.operand(arg)?];
                for more in [arg1, arg2, arg3].into_iter().flatten() {
                    operands.push(self.operand(more)?);
                }
                self.math(handle, fun, &operands)
            }
            Expression::As { expr, kind, convert } => self.convert(expr, kind, convert),
            Expression::ArrayLength(array) => self.array_length(array),
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::ZeroValue(_)
            | Expression::FunctionArgument(_)
            | Expression::GlobalVariable(_)
            | Expression::LocalVariable(_) => self.value(handle),
            ref other => {
                let text = format!("{other:?}");
                let name = text.split([' ', '(', '{']).next().unwrap_or_default().to_string();
                self.fail(format!("{name} in a compute kernel"))
            }
        }
    }

    /// What lies at a place. An atomic load is volatile, so that the compiler does not reuse an old value.
    fn load(&mut self, pointer: Handle<Expression>) -> WriteResult<String> {
        if let Some(component) = self.load_component(pointer)? {
            return Ok(component);
        }
        let place = self.value(pointer)?;
        let atomic = match *self.type_of(pointer)? {
            TypeInner::Pointer { base, .. } => matches!(self.types.inner(base), TypeInner::Atomic(_)),
            _ => false,
        };
        // Any other place is read by naming it.
        if !atomic {
            return Ok(place);
        }
        let kind = self.type_name_of_atomic(pointer)?.name();
        let space = self.space_of(pointer)?;
        Ok(format!("(*(volatile {space}{kind}*){})", address(&place)))
    }

    /// `select`, for one condition or for each component.
    fn select(
        &mut self,
        condition: Handle<Expression>,
        accept: Handle<Expression>,
        reject: Handle<Expression>,
    ) -> WriteResult<String> {
        let c = self.operand(condition)?;
        // One condition chooses whole values.
        if matches!(c.shape, ValueShape::Scalar(_)) {
            let (accept, reject) = (self.value(accept)?, self.value(reject)?);
            return Ok(format!("({} ? {accept} : {reject})", c.text));
        }
        let (a, b) = (self.operand(accept)?, self.operand(reject)?);
        let kind = a.shape.kind();
        self.apply("Select", "($a ? $b : $c)", &[c, a, b], kind)
    }

    /// `all`, `any` and tests of floats.
    fn relational(&mut self, fun: RelationalFunction, argument: Handle<Expression>) -> WriteResult<String> {
        let a = self.operand(argument)?;
        let joined = |sign: &str| {
            let parts: Vec<String> = (0..a.components()).map(|i| a.component(i)).collect();
            format!("({})", parts.join(sign))
        };
        match fun {
            RelationalFunction::All => Ok(joined(" && ")),
            RelationalFunction::Any => Ok(joined(" || ")),
            RelationalFunction::IsNan => self.apply("IsNan", "($a != $a)", &[a], Kind::Bool),
            RelationalFunction::IsInf => {
                self.apply("IsInf", "(m_abs($a) == AS_F32(0x7f800000u))", &[a], Kind::Bool)
            }
        }
    }
}
