//! Places in memory: components, elements and members, and indices that stay inside.
//!
//! A place is a text that C takes on either side of an assignment. A pointer parameter `p` is written `(*p)`, so that [`member`]
//! and [`address`] can take the star away again. WGSL lets an index outside an array be moved inside (WGSL, "Out-of-bounds
//! access"); so it is clamped here unless the kernel is trusted.

use crate::names;
use crate::text::{address, bare, member};
use crate::types::{COMPONENTS, Kind, Spelt, ValueShape};
use crate::writer::{WriteResult, Writer};
use crate::{Bounds, text};
use naga::{AddressSpace, Expression, GlobalVariable, Handle, Type, TypeInner};

/// The type that is indexed.
enum Base<'a> {
    /// A type of the module, with its handle.
    Type(Handle<Type>, &'a TypeInner),
    /// A vector without one.
    Vector(u8),
    /// A matrix without one: columns and rows.
    Matrix(u8, u8),
}

/// A component of a local vector.
struct LocalComponent {
    vector: String,
    /// Of the vector.
    shape: ValueShape,
    index: String,
}

impl<'a> Writer<'a> {
    /// What a pointer points to, or the type of a value; and whether it is a pointer.
    ///
    /// # Errors
    /// If the type has no parts.
    fn base(&self, handle: Handle<Expression>) -> WriteResult<(Base<'a>, bool)> {
        let inner = self.type_of(handle)?;
        match *inner {
            TypeInner::Pointer { base, .. } => Ok((Base::Type(base, self.types.inner(base)), true)),
            TypeInner::ValuePointer { size: Some(size), .. } => Ok((Base::Vector(size as u8), true)),
            TypeInner::Vector { size, .. } => Ok((Base::Vector(size as u8), false)),
            TypeInner::Matrix { columns, rows, .. } => Ok((Base::Matrix(columns as u8, rows as u8), false)),
            // A value of an array or struct, not a pointer to one.
            _ => match self.current()?.info[handle].ty.handle() {
                Some(ty) => Ok((Base::Type(ty, inner), false)),
                None => self.fail("an index into a value of this type"),
            },
        }
    }

    /// `base[index]` with an index that is computed.
    ///
    /// An index outside of the type reads its last part; see [`Bounds`].
    pub fn access(&mut self, base: Handle<Expression>, index: Handle<Expression>) -> WriteResult<String> {
        let (ty, is_pointer) = self.base(base)?;
        let index = self.index(index)?;
        if let (Base::Vector(n), false) = (&ty, is_pointer) {
            let vector = self.operand(base)?;
            return self.component_at(
                &vector.text,
                ValueShape::Vector(*n, vector.shape.kind()),
                bare(&index),
            );
        }
        let mut place = self.value(base)?;
        // A function's result has no address: it gets a variable first.
        if !is_pointer && place.contains('(') {
            let name = self.type_name(base)?;
            place = self.temporary_of(&name, &place)?;
        }
        self.element(base, ty, &place, &index)
    }

    /// An element of an array, a column of a matrix or a component of a vector at a place.
    fn element(
        &mut self,
        base: Handle<Expression>,
        ty: Base<'a>,
        place: &str,
        index: &str,
    ) -> WriteResult<String> {
        let (ty, inner) = match ty {
            Base::Vector(n) => return Ok(self.component_place(place, index, n)),
            Base::Matrix(columns, rows) => return Ok(self.column_place(place, index, columns, rows)),
            Base::Type(ty, inner) => (ty, inner),
        };
        match *inner {
            TypeInner::Vector { size, .. } => Ok(self.component_place(place, index, size as u8)),
            TypeInner::Matrix { columns, rows, .. } => {
                Ok(self.column_place(place, index, columns as u8, rows as u8))
            }
            TypeInner::Array { size, .. } => {
                let padded = if self.types.padding(ty) > 0 { ".e" } else { "" };
                // An array of a constant length is a struct of an array, so that C can assign it.
                if let Some(count) = self.types.count(size)? {
                    let index = self.clamp_index(index, count);
                    return Ok(format!("{}{padded}", member(place, &format!("v[{index}]"))));
                }
                let index = self.clamped_at_run_time(base, ty, index)?;
                Ok(format!("{place}[{index}]{padded}"))
            }
            _ => self.fail("an index into a value of this type"),
        }
    }

    /// Column `index` of a matrix at a place; columns of three rows lie in structs with padding.
    fn column_place(&self, place: &str, index: &str, columns: u8, rows: u8) -> String {
        let index = self.clamp_index(index, u32::from(columns));
        let padded = if rows == 3 { ".v" } else { "" };
        format!("{}{padded}", member(place, &format!("c[{index}]")))
    }

    /// Component `index` of a vector at a place: by its name if the index is constant, else by the address of the first.
    fn component_place(&self, place: &str, index: &str, count: u8) -> String {
        let index = self.clamp_index(index, u32::from(count));
        // A literal below the count names its component.
        match index.strip_suffix('u').and_then(|i| i.parse::<usize>().ok()).and_then(|i| COMPONENTS.get(i)) {
            Some(&c) => member(place, &c.to_string()),
            None => format!("(&{})[{index}]", member(place, "x")),
        }
    }

    /// The component of a local vector that a pointer is to, if it is to one. Addresses of such
    /// components keep a vector out of registers, and some compilers lose track of what is stored there.
    fn component_of_local(&mut self, pointer: Handle<Expression>) -> WriteResult<Option<LocalComponent>> {
        let Expression::Access { base, index } = self.current()?.function.expressions[pointer] else {
            return Ok(None);
        };
        let (shape, space) = match *self.type_of(base)? {
            TypeInner::Pointer { base, space } => (ValueShape::from_type(self.types.inner(base)), space),
            TypeInner::ValuePointer { size: Some(size), scalar, space } => {
                (Kind::from_scalar(scalar).map(|kind| ValueShape::Vector(size as u8, kind)), space)
            }
            _ => return Ok(None),
        };
        let Some(shape @ ValueShape::Vector(..)) = shape else { return Ok(None) };
        // Memory that others see has addresses anyway.
        if !matches!(space, AddressSpace::Function | AddressSpace::Private) {
            return Ok(None);
        }
        let index = self.index(index)?;
        Ok(Some(LocalComponent { vector: self.value(base)?, shape, index: bare(&index).to_string() }))
    }

    /// Loads a component of a local vector; `None` if the pointer is to anything else.
    pub fn load_component(&mut self, pointer: Handle<Expression>) -> WriteResult<Option<String>> {
        match self.component_of_local(pointer)? {
            Some(LocalComponent { vector, shape, index }) => {
                Ok(Some(self.component_at(&vector, shape, &index)?))
            }
            None => Ok(None),
        }
    }

    /// Stores a component of a local vector; whether the pointer was to one.
    ///
    /// A store beyond the last component goes to the last, as a load does.
    pub fn store_component(&mut self, pointer: Handle<Expression>, value: &str) -> WriteResult<bool> {
        let Some(LocalComponent { vector, shape, index }) = self.component_of_local(pointer)? else {
            return Ok(false);
        };
        let ty = self.types.shape(shape);
        let name = format!("{ty}_set");
        self.helper(&name, |_| {
            let ValueShape::Vector(n, kind) = shape else { return Ok(String::new()) };
            let last = COMPONENTS[n as usize - 1];
            let cases =
                (0..n as usize - 1).map(|i| format!("if (i == {i}u) v->{} = x; else ", COMPONENTS[i]));
            let cases: String = cases.collect();
            Ok(format!("DEV void {name}({ty}* v, u32 i, {} x) {{ {cases}v->{last} = x; }}\n", kind.name()))
        })?;
        self.line(format!("{name}({}, {index}, {});", bare(&address(&vector)), bare(value)));
        Ok(true)
    }

    /// A component of a vector value by an index; that of the last for all indices beyond.
    fn component_at(&mut self, vector: &str, shape: ValueShape, index: &str) -> WriteResult<String> {
        let ValueShape::Vector(n, kind) = shape else { return self.fail("a component of no vector") };
        let ty = self.types.shape(shape);
        let name = format!("{ty}_at");
        self.helper(&name, |_| {
            let last = COMPONENTS[n as usize - 1];
            let cases = (0..n as usize - 1).map(|i| format!("i == {i}u ? v.{} : ", COMPONENTS[i]));
            let cases: String = cases.collect();
            Ok(format!("DEV {} {name}(const {ty} v, u32 i) {{ return {cases}v.{last}; }}\n", kind.name()))
        })?;
        Ok(format!("{ty}_at({}, {index})", bare(vector)))
    }

    /// An index as an unsigned word.
    ///
    /// A negative one becomes a large one, which clamping moves to the last part.
    fn index(&mut self, handle: Handle<Expression>) -> WriteResult<String> {
        let index = self.operand(handle)?;
        Ok(match index.shape.kind() {
            Kind::U32 => index.text,
            _ => match index.text.parse::<u32>() {
                Ok(number) => format!("{number}u"),
                Err(_) => format!("((u32){})", index.text),
            },
        })
    }

    /// An index kept below `count`.
    /// A constant that is below needs no call.
    fn clamp_index(&self, index: &str, count: u32) -> String {
        let constant = index.strip_suffix('u').and_then(|i| i.parse::<u32>().ok());
        if self.options.bounds == Bounds::Unchecked || constant.is_some_and(|i| i < count) {
            return bare(index).to_string();
        }
        format!("min_u({}, {}u)", bare(index), count.saturating_sub(1))
    }

    /// An index into a runtime-sized array, kept below its length. The array has one element at least, by its binding's least size.
    fn clamped_at_run_time(
        &mut self,
        base: Handle<Expression>,
        array: Handle<Type>,
        index: &str,
    ) -> WriteResult<String> {
        // The kernel is trusted: its indices are written as they are.
        if self.options.bounds == Bounds::Unchecked {
            return Ok(bare(index).to_string());
        }
        let length = self.length(base, array)?;
        Ok(format!("min_u({}, {length} - 1u)", bare(index)))
    }

    /// `base.member` or `base[constant]`.
    pub fn access_index(&mut self, base: Handle<Expression>, index: u32) -> WriteResult<String> {
        let (ty, is_pointer) = self.base(base)?;
        let place = self.value(base)?;
        match ty {
            // A constant index is one that the validator has checked.
            Base::Vector(_) => Ok(member(&place, &self.component_name(index)?)),
            Base::Type(_, TypeInner::Vector { .. }) => Ok(member(&place, &self.component_name(index)?)),
            Base::Type(_, TypeInner::Struct { members, .. }) => {
                let found = self.need(members.get(index as usize), "a member that a struct lacks")?;
                // A runtime-sized array is no member of the struct in C: it is found behind it by its offset.
                if self.is_dynamic(found.ty) {
                    let element = self.types.name(found.ty)?;
                    let space = self.space_of(base)?;
                    let at = address(&place);
                    return Ok(format!("(({space}{element}*)(({space}u8*){at} + {}))", found.offset));
                }
                Ok(member(&place, &names::member(found.name.as_deref().unwrap_or_default())))
            }
            ty => {
                let mut place = place;
                if !is_pointer && place.contains('(') {
                    let name = self.type_name(base)?;
                    place = self.temporary_of(&name, &place)?;
                }
                self.element(base, ty, &place, &format!("{index}u"))
            }
        }
    }

    /// `x`, `y`, `z` or `w`.
    fn component_name(&self, index: u32) -> WriteResult<String> {
        let found = COMPONENTS.get(index as usize).map(char::to_string);
        self.need(found, "a component that a vector lacks")
    }

    /// What stands before the type of a pointer's target.
    pub fn space_of(&self, pointer: Handle<Expression>) -> WriteResult<&'static str> {
        match *self.type_of(pointer)? {
            TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => self.space(space),
            _ => self.fail("a value where a pointer is expected"),
        }
    }

    /// The kind of an atomic variable.
    ///
    /// # Errors
    /// If it is neither `i32` nor `u32`, the atomic types of WGSL.
    pub fn type_name_of_atomic(&self, pointer: Handle<Expression>) -> WriteResult<Kind> {
        if let TypeInner::Pointer { base, .. } = *self.type_of(pointer)?
            && let TypeInner::Atomic(scalar) = *self.types.inner(base)
            && let Some(kind @ (Kind::I32 | Kind::U32)) = Kind::from_scalar(scalar)
        {
            return Ok(kind);
        }
        self.fail("an atomic operation on a type other than i32 and u32")
    }

    /// `arrayLength(array)`.
    pub fn array_length(&mut self, array: Handle<Expression>) -> WriteResult<String> {
        match *self.type_of(array)? {
            TypeInner::Pointer { base, .. } => self.length(array, base),
            _ => self.fail("the length of no array"),
        }
    }

    /// Elements of a runtime-sized array, found by the bytes of its binding.
    fn length(&self, array: Handle<Expression>, ty: Handle<Type>) -> WriteResult<String> {
        let TypeInner::Array { stride, .. } = *self.types.inner(ty) else {
            return self.fail("the length of no array");
        };
        // What stands before the array in its struct does not count.
        let (global, offset) = self.root(array)?;
        let name = &self.globals[&global];
        // The length follows from the bytes that the host bound, which are an argument of the kernel.
        let bytes = if offset == 0 { format!("{name}bytes") } else { format!("({name}bytes - {offset}u)") };
        Ok(format!("({bytes} / {stride}u)"))
    }

    /// The variable that holds a runtime-sized array, and where in it the array begins.
    ///
    /// # Errors
    /// If a function is given a pointer to the array: the bytes of the binding are not known there.
    fn root(&self, array: Handle<Expression>) -> WriteResult<(Handle<GlobalVariable>, u32)> {
        let expressions = &self.current()?.function.expressions;
        match expressions[array] {
            // The whole variable is the array.
            Expression::GlobalVariable(global) => Ok((global, 0)),
            Expression::AccessIndex { base, index } => {
                let Expression::GlobalVariable(global) = expressions[base] else {
                    return self.fail("a runtime-sized array that is no member of a variable");
                };
                let ty = self.module.global_variables[global].ty;
                let offset = match self.types.inner(ty) {
                    TypeInner::Struct { members, .. } => members.get(index as usize).map(|m| m.offset),
                    _ => None,
                };
                Ok((global, self.need(offset, "a member that a struct lacks")?))
            }
            _ => self.fail("a pointer to a runtime-sized array that a function is given"),
        }
    }

    /// A pointer as an argument of a call.
    pub fn pointer_argument(&mut self, handle: Handle<Expression>) -> WriteResult<String> {
        let place = self.value(handle)?;
        match *self.type_of(handle)? {
            // A pointer to such an array is one to its first element already.
            TypeInner::Pointer { base, .. } if self.is_dynamic(base) => Ok(place),
            _ => Ok(text::bare(&address(&place)).to_string()),
        }
    }
}
