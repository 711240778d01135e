//! Values made of parts, and constants.
//!
//! A vector is made by a call, which may stand anywhere in an expression. An array, struct or matrix is a braced list, which C
//! allows behind `=` alone; so its users give it a variable.

use crate::scalar::Operand;
use crate::text::{bare, literal};
use crate::types::{COMPONENTS, Field, Kind, Spelt, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::{Arena, Expression, Handle, Type, TypeInner};

impl<'a> Writer<'a> {
    /// A value of a type from its parts: a braced list for arrays, structs and matrices.
    pub fn compose(&mut self, ty: Handle<Type>, components: &[Handle<Expression>]) -> WriteResult<String> {
        if let TypeInner::Vector { scalar, .. } = *self.types.inner(ty) {
            let kind = self.need(Kind::from_scalar(scalar), "a vector of another width")?;
            let mut parts = Vec::new();
            for &component in components {
                let part = self.operand(component)?;
                // WGSL makes a vector of scalars and of smaller vectors in any mixture.
                parts.extend((0..part.components()).map(|i| part.component(i)));
            }
            // A vector is a call, so that it may stand in any expression.
            return self.vector_of(kind, &parts);
        }
        let values = components.iter().map(|&c| self.value(c)).collect::<WriteResult<Vec<_>>>()?;
        self.write_braced(ty, &values)
    }

    /// An array, struct or matrix as a braced list.
    ///
    /// # Errors
    /// If a matrix is not made of columns.
    fn write_braced(&mut self, ty: Handle<Type>, values: &[String]) -> WriteResult<String> {
        // Elements with padding are structs of their own, whose padding is cleared too.
        let listed = |padded: bool, pad: &str| {
            let each = values
                .iter()
                .map(|v| if padded { format!("{{{}, {pad}}}", bare(v)) } else { bare(v).into() });
            each.collect::<Vec<String>>().join(", ")
        };
        match *self.types.inner(ty) {
            TypeInner::Struct { .. } => self.struct_init(ty, values),
            TypeInner::Array { .. } => Ok(format!("{{{{{}}}}}", listed(self.types.padding(ty) > 0, "{0}"))),
            TypeInner::Matrix { rows, columns, .. } if values.len() == columns as usize => {
                Ok(format!("{{{{{}}}}}", listed(rows as u8 == 3, "{0}")))
            }
            _ => self.fail("a value of this type made of parts"),
        }
    }

    /// A struct as a braced list, with zeros between its members.
    ///
    /// `values` has one text for each member, in order.
    pub fn struct_init(&mut self, ty: Handle<Type>, values: &[String]) -> WriteResult<String> {
        let parts = self.types.fields(ty).into_iter().map(|field| match field {
            Field::Member(index) => values.get(index).map_or("0", |v| bare(v)).to_string(),
            Field::Pad(_) => "{0}".to_string(),
        });
        Ok(format!("{{{}}}", parts.collect::<Vec<_>>().join(", ")))
    }

    /// A vector of these scalars.
    ///
    /// The call is to a function that is added for this type. C of OpenCL 1.2 and CUDA C++ have no common literal for it.
    pub fn vector_of(&mut self, kind: Kind, parts: &[String]) -> WriteResult<String> {
        let shape = ValueShape::Vector(parts.len() as u8, kind);
        let ty = self.types.shape(shape);
        let name = format!("{ty}_new");
        self.helper(&name, |_| {
            let components = &COMPONENTS[..parts.len().min(4)];
            let parameters = components.iter().map(|c| format!("{} {c}", kind.name()));
            let set = components.iter().map(|c| format!("v.{c} = {c}; "));
            let (parameters, set) = (parameters.collect::<Vec<_>>().join(", "), set.collect::<String>());
            Ok(format!("DEV {ty} {name}({parameters}) {{ {ty} v; {set}return v; }}\n"))
        })?;
        let parts: Vec<&str> = parts.iter().map(|p| bare(p)).collect();
        Ok(format!("{ty}_new({})", parts.join(", ")))
    }

    /// A vector with one value in all components.
    ///
    /// The value is written once, as the argument of a function.
    pub fn splat(&mut self, size: u8, value: &Operand) -> WriteResult<String> {
        let kind = value.shape.kind();
        let ty = self.types.shape(ValueShape::Vector(size, kind));
        let name = format!("{ty}_splat");
        self.helper(&name, |writer| {
            let parts = vec!["x".to_string(); size as usize];
            let vector = writer.vector_of(kind, &parts)?;
            Ok(format!("DEV {ty} {name}({} x) {{ return {vector}; }}\n", kind.name()))
        })?;
        Ok(format!("{ty}_splat({})", bare(&value.text)))
    }

    /// A constant: a number, a call that makes a vector, or a braced list.
    ///
    /// # Errors
    /// If it holds a number that [`literal`] has no text for, or an expression that is no constant.
    pub fn constant(
        &mut self,
        arena: &'a Arena<Expression>,
        handle: Handle<Expression>,
    ) -> WriteResult<String> {
        match arena[handle] {
            Expression::Literal(value) => self.need(literal(value), "a number of another width"),
            Expression::Constant(constant) => {
                let init = self.module.constants[constant].init;
                // A constant's value lies in the arena of the module, not in that of a function.
                self.constant(&self.module.global_expressions, init)
            }
            Expression::ZeroValue(ty) => self.zero(ty),
            Expression::Compose { ty, ref components } => {
                let values = components.iter().map(|&c| self.constant(arena, c));
                let values = values.collect::<WriteResult<Vec<_>>>()?;
                let TypeInner::Vector { size, scalar } = *self.types.inner(ty) else {
                    return self.write_braced(ty, &values);
                };
                let kind = self.need(Kind::from_scalar(scalar), "a vector of another width")?;
                // Fewer parts than components: some parts are vectors.
                if values.len() == size as usize {
                    return self.vector_of(kind, &values);
                }
                let parts = self.flat(arena, handle)?;
                self.vector_of(kind, &parts)
            }
            Expression::Splat { size, value } => {
                let part = self.constant(arena, value)?;
                let kind = self.kind_of_constant(arena, value)?;
                self.splat(size as u8, &Operand { text: part, shape: ValueShape::Scalar(kind) })
            }
            ref other => {
                let text = format!("{other:?}");
                let name = text.split([' ', '(', '{']).next().unwrap_or_default().to_string();
                self.fail(format!("{name} in a constant"))
            }
        }
    }

    /// The scalars of a constant vector.
    fn flat(&mut self, arena: &'a Arena<Expression>, handle: Handle<Expression>) -> WriteResult<Vec<String>> {
        match arena[handle] {
            Expression::Compose { ref components, .. } => {
                let parts =
                    components.iter().map(|&c| self.flat(arena, c)).collect::<WriteResult<Vec<_>>>()?;
                Ok(parts.concat())
            }
            Expression::Splat { size, value } => Ok(vec![self.constant(arena, value)?; size as usize]),
            Expression::ZeroValue(ty) => match ValueShape::from_type(self.types.inner(ty)) {
                Some(ValueShape::Vector(n, kind)) => Ok(vec![zero_of(kind).into(); n as usize]),
                Some(ValueShape::Scalar(kind)) => Ok(vec![zero_of(kind).into()]),
                _ => self.fail("a vector made of something else"),
            },
            Expression::Constant(constant) => {
                let init = self.module.constants[constant].init;
                self.flat(&self.module.global_expressions, init)
            }
            _ => Ok(vec![self.constant(arena, handle)?]),
        }
    }

    /// The kind of a constant scalar.
    fn kind_of_constant(
        &self,
        arena: &'a Arena<Expression>,
        handle: Handle<Expression>,
    ) -> WriteResult<Kind> {
        let ty = match arena[handle] {
            Expression::Literal(value) => {
                return self.need(Kind::from_scalar(value.scalar()), "a number of another width");
            }
            Expression::Constant(constant) => self.module.constants[constant].ty,
            Expression::ZeroValue(ty) => ty,
            _ => return self.fail("a splat of something that is no number"),
        };
        let shape = ValueShape::from_type(self.types.inner(ty));
        Ok(self.need(shape, "a splat of something that is no number")?.kind())
    }

    /// The zero of a type as a value, or as a braced list.
    fn zero(&mut self, ty: Handle<Type>) -> WriteResult<String> {
        match ValueShape::from_type(self.types.inner(ty)) {
            Some(ValueShape::Scalar(kind)) => Ok(zero_of(kind).into()),
            Some(ValueShape::Vector(n, kind)) => {
                let zero = Operand { text: zero_of(kind).into(), shape: ValueShape::Scalar(kind) };
                self.splat(n, &zero)
            }
            _ => Ok("{0}".into()),
        }
    }

    /// What a variable of this type begins with.
    /// Behind `=`, `{0}` is the zero of every struct of C.
    pub fn zero_init(&mut self, ty: Handle<Type>) -> WriteResult<String> {
        match ValueShape::from_type(self.types.inner(ty)) {
            Some(ValueShape::Scalar(kind)) => Ok(zero_of(kind).into()),
            _ => Ok("{0}".into()),
        }
    }
}

/// The zero of a kind; an `f16` is its 16 bits.
fn zero_of(kind: Kind) -> &'static str {
    match kind {
        Kind::F32 => "0.0f",
        Kind::F16 => "((h16)0)",
        Kind::I32 => "0",
        Kind::U32 => "0u",
        Kind::Bool => "false",
    }
}
