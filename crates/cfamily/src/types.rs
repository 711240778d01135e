//! Types of the WGSL as structs of C, with the layout that WGSL prescribes.
//!
//! A vector is a struct of its components, a matrix one of an array of columns, an array one of an array: all of them can
//! be assigned and returned. What C would not pad by itself is padded by members of bytes.

use crate::names::{self, ScopeNames};
use naga::proc::{IndexableLength, Layouter};
use naga::{ArraySize, Handle, Module, Type, TypeInner};
use std::collections::{BTreeSet, HashMap, HashSet};
use tapml_wgsl::Fail;
pub use tapml_wgsl::Kind;

/// How a scalar type stands in C.
pub trait Spelt {
    /// Its type in C.
    fn name(self) -> &'static str;
    /// One letter for the names of vectors and functions.
    fn letter(self) -> char;
    /// Bytes of one.
    fn width(self) -> u32;
}

impl Spelt for Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::F32 => "f32",
            Kind::F16 => "h16",
            Kind::I32 => "i32",
            Kind::U32 => "u32",
            Kind::Bool => "bool",
        }
    }

    fn letter(self) -> char {
        match self {
            Kind::F32 => 'f',
            Kind::F16 => 'h',
            Kind::I32 => 'i',
            Kind::U32 => 'u',
            Kind::Bool => 'b',
        }
    }

    fn width(self) -> u32 {
        match self {
            Kind::F16 => 2,
            Kind::Bool => 1,
            Kind::F32 | Kind::I32 | Kind::U32 => 4,
        }
    }
}

/// The shape of a value of numbers or booleans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ValueShape {
    /// One number or boolean.
    Scalar(Kind),
    /// Components, from 2 to 4.
    Vector(u8, Kind),
    /// Columns and rows.
    Matrix(u8, u8, Kind),
}

impl ValueShape {
    /// The shape of a type; `None` for arrays, structs and pointers.
    pub fn from_type(inner: &TypeInner) -> Option<ValueShape> {
        Some(match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                ValueShape::Scalar(Kind::from_scalar(scalar)?)
            }
            TypeInner::Vector { size, scalar } => ValueShape::Vector(size as u8, Kind::from_scalar(scalar)?),
            TypeInner::Matrix { columns, rows, scalar } => {
                ValueShape::Matrix(columns as u8, rows as u8, Kind::from_scalar(scalar)?)
            }
            _ => return None,
        })
    }

    /// What its components are.
    pub fn kind(self) -> Kind {
        match self {
            ValueShape::Scalar(kind) | ValueShape::Vector(_, kind) | ValueShape::Matrix(_, _, kind) => kind,
        }
    }

    /// The same shape of another kind.
    pub fn with_kind(self, kind: Kind) -> ValueShape {
        match self {
            ValueShape::Scalar(_) => ValueShape::Scalar(kind),
            ValueShape::Vector(n, _) => ValueShape::Vector(n, kind),
            ValueShape::Matrix(columns, rows, _) => ValueShape::Matrix(columns, rows, kind),
        }
    }

    /// Its type in C.
    pub fn name(self) -> String {
        match self {
            ValueShape::Scalar(kind) => kind.name().into(),
            ValueShape::Vector(n, kind) => format!("v{n}{}", kind.letter()),
            ValueShape::Matrix(columns, rows, kind) => format!("m{columns}x{rows}{}", kind.letter()),
        }
    }

    /// Short form of the type for names of functions.
    pub fn tag(self) -> String {
        match self {
            ValueShape::Scalar(kind) => kind.letter().into(),
            _ => self.name(),
        }
    }
}

/// Names of a vector's components.
pub const COMPONENTS: [char; 4] = ['x', 'y', 'z', 'w'];

/// A member of a struct in C.
pub enum Field {
    /// The member of this index.
    Member(usize),
    /// So many bytes between members.
    Pad(u32),
}

/// A vector, with 0 columns, or a matrix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TextShape {
    columns: u8,
    rows: u8,
    kind: Kind,
}

/// The types that the text uses.
pub struct TextTypes<'a> {
    /// The module that is printed.
    pub module: &'a Module,
    /// Sizes and alignments by WGSL's rules.
    layouter: &'a Layouter,
    /// Names of structs in the text.
    structs: HashMap<Handle<Type>, String>,
    /// Vectors and matrices that are used. Sorted, so that a vector is declared before the matrices of it.
    shapes: BTreeSet<TextShape>,
    /// Arrays and structs that are used.
    used: HashSet<Handle<Type>>,
}

impl<'a> TextTypes<'a> {
    /// Nothing used yet; structs have their names.
    pub fn new(module: &'a Module, layouter: &'a Layouter, names: &mut ScopeNames) -> TextTypes<'a> {
        let is_struct = |inner: &TypeInner| matches!(inner, TypeInner::Struct { .. });
        let structs = module.types.iter().filter(|(_, ty)| is_struct(&ty.inner));
        let structs = structs.map(|(handle, ty)| (handle, names.unique(ty.name.as_deref()))).collect();
        TextTypes { module, layouter, structs, shapes: BTreeSet::new(), used: HashSet::new() }
    }

    /// A type's definition.
    pub fn inner(&self, ty: Handle<Type>) -> &'a TypeInner {
        &self.module.types[ty].inner
    }

    /// Length of an array; `None` if it is runtime-sized.
    ///
    /// # Errors
    /// If it is not known.
    pub fn count(&self, size: ArraySize) -> Result<Option<u32>, Fail> {
        match size.resolve(self.module.to_ctx()) {
            Ok(IndexableLength::Known(n)) => Ok(Some(n)),
            Ok(IndexableLength::Dynamic) => Ok(None),
            Err(e) => Err(Fail::new(format!("an array without a length: {e}"))),
        }
    }

    /// Whether a type is an array without a length.
    pub fn is_dynamic_array(&self, inner: &TypeInner) -> bool {
        matches!(inner, TypeInner::Array { size: ArraySize::Dynamic, .. })
    }

    /// The type of a shape, declared in the text.
    pub fn shape(&mut self, shape: ValueShape) -> String {
        match shape {
            ValueShape::Scalar(_) => {}
            ValueShape::Vector(n, kind) => drop(self.shapes.insert(TextShape { columns: 0, rows: n, kind })),
            ValueShape::Matrix(columns, rows, kind) => {
                self.shapes.insert(TextShape { columns: 0, rows, kind });
                self.shapes.insert(TextShape { columns, rows, kind });
            }
        }
        shape.name()
    }

    /// The name of a type, declared in the text; a runtime-sized array is named by its element.
    ///
    /// # Errors
    /// For types that no value has, such as textures.
    pub fn name(&mut self, ty: Handle<Type>) -> Result<String, Fail> {
        let inner = self.inner(ty);
        if let Some(shape) = ValueShape::from_type(inner) {
            return Ok(self.shape(shape));
        }
        match *inner {
            TypeInner::Array { base, size, .. } => {
                let element = self.name(base)?;
                let Some(count) = self.count(size)? else { return self.element(ty) };
                self.used.insert(ty);
                Ok(format!("{element}_x{count}"))
            }
            TypeInner::Struct { ref members, .. } => {
                // Members are named before the struct is declared.
                if self.used.insert(ty) {
                    for member in members {
                        self.name(member.ty)?;
                    }
                }
                Ok(self.structs.get(&ty).cloned().unwrap_or_default())
            }
            ref other => Err(Fail::new(format!("a value of the type {}", variant(other)))),
        }
    }

    /// The type of an array's elements as they lie in it: padded, if the stride is larger than the element.
    fn element(&mut self, array: Handle<Type>) -> Result<String, Fail> {
        let TypeInner::Array { base, .. } = *self.inner(array) else {
            return Err(Fail::new("an element of no array"));
        };
        let element = self.name(base)?;
        if self.padding(array) == 0 {
            return Ok(element);
        }
        self.used.insert(array);
        Ok(format!("{element}_padded"))
    }

    /// Bytes behind each element of an array.
    pub fn padding(&self, array: Handle<Type>) -> u32 {
        match *self.inner(array) {
            TypeInner::Array { base, stride, .. } => stride.saturating_sub(self.size(base)),
            _ => 0,
        }
    }

    /// Bytes of a type in C.
    ///
    /// A vector of three is not padded here, as in WGSL: a scalar may follow it directly.
    pub fn size(&self, ty: Handle<Type>) -> u32 {
        match *self.inner(ty) {
            TypeInner::Array { size, stride, .. } => match self.count(size) {
                Ok(Some(count)) => count.saturating_mul(stride),
                _ => 0,
            },
            TypeInner::Struct { span, .. } => span,
            ref inner => match ValueShape::from_type(inner) {
                Some(ValueShape::Scalar(kind)) => kind.width(),
                Some(ValueShape::Vector(n, kind)) => u32::from(n) * kind.width(),
                // Matrices lie as WGSL says.
                _ => self.layouter[ty].size,
            },
        }
    }

    /// Members and padding of a struct; a runtime-sized array at its end is left out.
    ///
    /// Offsets are those of WGSL. C would place members at the same ones or earlier, and padding moves them.
    pub fn fields(&self, ty: Handle<Type>) -> Vec<Field> {
        let TypeInner::Struct { ref members, span } = *self.inner(ty) else { return Vec::new() };
        let (mut fields, mut at) = (Vec::new(), 0);
        for (index, member) in members.iter().enumerate() {
            if self.is_dynamic_array(self.inner(member.ty)) {
                // C has no empty structs.
                if at == 0 {
                    fields.push(Field::Pad(span.max(1)));
                }
                // Nothing stands behind a runtime-sized array.
                return fields;
            }
            if member.offset > at {
                fields.push(Field::Pad(member.offset - at));
            }
            fields.push(Field::Member(index));
            at = member.offset + self.size(member.ty);
        }
        if span > at {
            fields.push(Field::Pad(span - at));
        }
        fields
    }

    /// The declarations of all types used.
    ///
    /// The module has types before those that use them, and so has the text.
    pub fn declarations(&mut self) -> Result<String, Fail> {
        let mut out = String::new();
        for &TextShape { columns, rows, kind } in &self.shapes {
            out.push_str(&declare_shape(columns, rows, kind));
        }
        for (handle, ty) in self.module.types.iter() {
            if !self.used.contains(&handle) {
                continue;
            }
            let text = match ty.inner {
                TypeInner::Array { base, size, .. } => self.declare_array(handle, base, size)?,
                TypeInner::Struct { .. } => self.declare_struct(handle)?,
                _ => continue,
            };
            // Several types of the module may be one in C.
            if !out.contains(&text) {
                out.push_str(&text);
            }
        }
        Ok(out)
    }

    /// An array as a struct, and its padded element if there is one.
    fn declare_array(
        &mut self,
        ty: Handle<Type>,
        base: Handle<Type>,
        size: ArraySize,
    ) -> Result<String, Fail> {
        let (element, padding) = (self.name(base)?, self.padding(ty));
        let mut out = String::new();
        if padding > 0 {
            out = format!("typedef struct {{ {element} e; u8 pad[{padding}]; }} {element}_padded;\n");
        }
        if let Some(count) = self.count(size)? {
            let (stored, name) = (self.element(ty)?, self.name(ty)?);
            out.push_str(&format!("typedef struct {{ {stored} v[{count}]; }} {name};\n"));
        }
        Ok(out)
    }

    /// A struct with its padding.
    fn declare_struct(&mut self, ty: Handle<Type>) -> Result<String, Fail> {
        let TypeInner::Struct { ref members, .. } = *self.inner(ty) else { return Ok(String::new()) };
        let mut out = String::from("typedef struct {");
        for (index, field) in self.fields(ty).into_iter().enumerate() {
            match field {
                Field::Pad(bytes) => out.push_str(&format!(" u8 pad{index}[{bytes}];")),
                Field::Member(member) => {
                    let member = &members[member];
                    let ty = self.name(member.ty)?;
                    let name = names::member(member.name.as_deref().unwrap_or_default());
                    out.push_str(&format!(" {ty} {name};"));
                }
            }
        }
        Ok(format!("{out} }} {};\n", self.name(ty)?))
    }
}

/// A vector if there are no columns, else a matrix.
fn declare_shape(columns: u8, rows: u8, kind: Kind) -> String {
    let vector = ValueShape::Vector(rows, kind).name();
    if columns == 0 {
        let components: Vec<String> = COMPONENTS[..rows as usize].iter().map(char::to_string).collect();
        // Vectors of 2 and 4 are aligned to their size as in WGSL, which lets compilers load them at once.
        let align = match (rows, kind) {
            // A vector of three would get 16 bytes by its alignment.
            (3, _) | (_, Kind::Bool) => String::new(),
            _ => format!("ALIGN({}) ", u32::from(rows) * kind.width()),
        };
        return format!("typedef struct {align}{{ {} {}; }} {vector};\n", kind.name(), components.join(", "));
    }
    let matrix = ValueShape::Matrix(columns, rows, kind).name();
    if rows != 3 {
        return format!("typedef struct {{ {vector} c[{columns}]; }} {matrix};\n");
    }
    let column = format!("struct {{ {vector} v; u8 pad[{}]; }}", kind.width());
    format!("typedef struct {{ {column} c[{columns}]; }} {matrix};\n")
}

/// The name of a type's variant, for messages.
pub fn variant(inner: &TypeInner) -> String {
    let text = format!("{inner:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_string()
}
