//! Types as the emulator sees them: runs of scalars in registers, and byte layouts in buffers.
//!
//! Sizes and strides of buffers follow the WGSL section on memory layout; naga has computed the offsets of struct members and the
//! strides of arrays.

use crate::code::HELD;
use naga::proc::IndexableLength;
use naga::{ArraySize, CooperativeSize, Handle, Module, Type, TypeInner, VectorSize};
pub use tapml_wgsl::Kind;

/// The largest value or variable, in scalars, that is kept in registers.
/// A larger one would take its number of registers in every lane of the workgroup.
pub const MAX_SCALARS: u32 = 1 << 14;

/// Bytes of a scalar in a buffer.
/// Booleans have no layout in buffers; they count as 4 like any word.
pub fn width(kind: Kind) -> u32 {
    if kind == Kind::F16 { 2 } else { 4 }
}

/// How memory is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryLayout {
    /// As the host sees it; offsets in bytes.
    Host,
    /// One word per scalar; offsets in scalars.
    Flat,
}

/// One scalar of a composite value: its offset and kind.
///
/// The offset is in the units of the layout that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    pub offset: u32,
    pub kind: Kind,
}

/// A step from a composite into one of its elements.
///
/// Element `i` lies `i * scale` layout units after the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessStep {
    /// Distance between neighbouring elements, in layout units.
    pub scale: u32,
    /// Number of elements; `None` for a runtime-sized array.
    pub count: Option<u32>,
}

/// Type questions about one module.
///
/// Answers are `None` for types that no value of a compute kernel has, such as textures.
pub struct ModuleTypes<'a> {
    /// The module that the types belong to.
    pub module: &'a Module,
    /// Scalars of every type, in the order of the type arena.
    scalars: Vec<Option<u32>>,
}

impl<'a> ModuleTypes<'a> {
    /// Counts the scalars of every type once: nested structs would be walked again and again otherwise.
    pub fn new(module: &'a Module) -> ModuleTypes<'a> {
        let mut types = ModuleTypes { module, scalars: Vec::with_capacity(module.types.len()) };
        // A type's parts stand before it in the arena, so their counts are there already.
        for (_, ty) in module.types.iter() {
            let scalars = types.count_scalars(&ty.inner);
            types.scalars.push(scalars);
        }
        types
    }

    /// Number of scalars of a type that lies in the arena.
    fn scalars_of(&self, ty: Handle<Type>) -> Option<u32> {
        self.scalars.get(ty.index()).copied().flatten()
    }

    /// The structure of a type of the arena.
    pub fn inner(&self, ty: Handle<Type>) -> &'a TypeInner {
        &self.module.types[ty].inner
    }

    /// The length of an array: `Some(None)` if it is runtime-sized. Override constants are resolved before.
    fn count(&self, size: ArraySize) -> Option<Option<u32>> {
        match size.resolve(self.module.to_ctx()).ok()? {
            IndexableLength::Known(n) => Some(Some(n)),
            // Storage buffers only: their length is known when they are bound.
            IndexableLength::Dynamic => Some(None),
        }
    }

    /// Number of scalars of a value; saturates, and is `None` for types that are no values.
    pub fn scalars(&self, inner: &TypeInner) -> Option<u32> {
        self.count_scalars(inner)
    }

    /// As [`ModuleTypes::scalars`]; it asks the table for the parts of a type and does not recurse.
    fn count_scalars(&self, inner: &TypeInner) -> Option<u32> {
        Some(match *inner {
            TypeInner::Scalar(_) | TypeInner::Atomic(_) => 1,
            TypeInner::Vector { size, .. } => size as u32,
            TypeInner::Matrix { columns, rows, .. } => columns as u32 * rows as u32,
            TypeInner::CooperativeMatrix {
                columns: CooperativeSize::Sixteen,
                rows: CooperativeSize::Sixteen,
                ..
            // A lane holds only its share of a cooperative matrix.
            } => HELD,
            TypeInner::Array { base, size, .. } => self.scalars_of(base)?.saturating_mul(self.count(size)??),
            TypeInner::Struct { ref members, .. } => {
                members.iter().try_fold(0_u32, |sum, m| Some(sum.saturating_add(self.scalars_of(m.ty)?)))?
            }
            _ => return None,
        })
    }

    /// The scalars of a value in order.
    /// Vectors and arrays go by index, structs by member, matrices by column.
    pub fn leaves(&self, inner: &TypeInner, layout: MemoryLayout) -> Option<Vec<Leaf>> {
        let mut out = Vec::new();
        self.add_leaves(inner, layout, 0, &mut out)?;
        Some(out)
    }

    /// Appends the leaves of a value that begins at `at`.
    fn add_leaves(
        &self,
        inner: &TypeInner,
        layout: MemoryLayout,
        at: u32,
        out: &mut Vec<Leaf>,
    ) -> Option<()> {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                out.push(Leaf { offset: at, kind: Kind::from_scalar(scalar)? });
            }
            TypeInner::Struct { ref members, .. } => {
                for index in 0..members.len() {
                    let (offset, ty) = self.member(inner, index as u32, layout)?;
                    self.add_leaves(self.inner(ty), layout, at + offset, out)?;
                }
            }
            TypeInner::Vector { size, scalar } => {
                let step = self.step(inner, layout)?;
                for i in 0..size as u32 {
                    self.add_leaves(&TypeInner::Scalar(scalar), layout, at + i * step.scale, out)?;
                }
            }
            TypeInner::Matrix { columns, rows, scalar } => {
                let step = self.step(inner, layout)?;
                for i in 0..columns as u32 {
                    self.add_leaves(
                        &TypeInner::Vector { size: rows, scalar },
                        layout,
                        at + i * step.scale,
                        out,
                    )?;
                }
            }
            TypeInner::Array { base, .. } => {
                let step = self.step(inner, layout)?;
                for i in 0..step.count? {
                    self.add_leaves(self.inner(base), layout, at + i * step.scale, out)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// How to index a vector, matrix or array.
    pub fn step(&self, inner: &TypeInner, layout: MemoryLayout) -> Option<AccessStep> {
        let flat = layout == MemoryLayout::Flat;
        Some(match *inner {
            TypeInner::Vector { size, scalar } => AccessStep {
                scale: if flat { 1 } else { width(Kind::from_scalar(scalar)?) },
                count: Some(size as u32),
            },
            TypeInner::Matrix { columns, rows, scalar } => {
                // A column is aligned as a vector, and vectors of 3 are aligned as those of 4.
                let padded = if rows == VectorSize::Bi { 2 } else { 4 };
                let scale = if flat { rows as u32 } else { padded * width(Kind::from_scalar(scalar)?) };
                AccessStep { scale, count: Some(columns as u32) }
            }
            TypeInner::Array { base, size, stride } => {
                let count = self.count(size)?;
                AccessStep { scale: if flat { self.scalars_of(base)? } else { stride }, count }
            }
            _ => return None,
        })
    }

    /// Offset and type of a struct's member.
    /// The offset is in layout units from the start of the struct.
    pub fn member(&self, inner: &TypeInner, index: u32, layout: MemoryLayout) -> Option<(u32, Handle<Type>)> {
        let TypeInner::Struct { ref members, .. } = *inner else { return None };
        let member = members.get(index as usize)?;
        if layout == MemoryLayout::Host {
            return Some((member.offset, member.ty));
        }
        // Without padding: members follow one another.
        let before = members[..index as usize].iter().map(|m| self.scalars_of(m.ty));
        Some((before.sum::<Option<u32>>()?, member.ty))
    }

    /// The kind of a scalar, vector or matrix.
    pub fn kind(&self, inner: &TypeInner) -> Option<Kind> {
        match *inner {
            TypeInner::Scalar(s)
            | TypeInner::Vector { scalar: s, .. }
            | TypeInner::Matrix { scalar: s, .. }
            | TypeInner::CooperativeMatrix { scalar: s, .. }
            | TypeInner::Atomic(s) => Kind::from_scalar(s),
            _ => None,
        }
    }
}
