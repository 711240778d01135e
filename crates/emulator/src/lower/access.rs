//! Places in memory: what pointer expressions denote, and how to step into them.
//!
//! Constant steps add to the offset. Steps with an index in a register are kept as [`Dim`]s until the place is loaded or stored,
//! where they are clamped. An index out of bounds therefore never leaves its own array, vector or matrix.

use super::place::{AccessPlace, Dim, Root};
use super::types::{Kind, MemoryLayout, width};
use super::{Lower, LowerResult, Val};
use crate::code::{Bin, IndexBound, Inst, Mem, Reg, RuntimeLength};
use naga::{Expression, Handle, TypeInner};

impl Lower<'_> {
    /// The place that a pointer expression denotes.
    pub(super) fn place(&mut self, pointer: Handle<Expression>) -> LowerResult<AccessPlace> {
        match self.value(pointer)? {
            Val::Place(place) => Ok(place),
            Val::Regs(_) => self.fail("a pointer that denotes no place"),
        }
    }

    /// The type that a pointer points to.
    pub(super) fn pointee(&self, pointer: &TypeInner) -> LowerResult<TypeInner> {
        match *pointer {
            TypeInner::Pointer { base, .. } => Ok(self.types.inner(base).clone()),
            TypeInner::ValuePointer { size: Some(size), scalar, .. } => {
                Ok(TypeInner::Vector { size, scalar })
            }
            TypeInner::ValuePointer { size: None, scalar, .. } => Ok(TypeInner::Scalar(scalar)),
            _ => self.fail("a load or store through something that is no pointer"),
        }
    }

    /// The place of a member or of an element with a constant index.
    /// A constant index out of bounds is kept as a [`Dim`], so that it is clamped and reported like any other.
    pub(super) fn step_constant(
        &mut self,
        mut place: AccessPlace,
        base: &TypeInner,
        index: u32,
    ) -> LowerResult<AccessPlace> {
        // Members have offsets of their own, and their index is always valid.
        if let TypeInner::Struct { .. } = base {
            let member = self.types.member(base, index, place.layout());
            place.offset += self.need(member, "a struct member of an unknown layout")?.0;
            return Ok(place);
        }
        let step = self.types.step(base, place.layout());
        let step = self.need(step, "an index into something that has no elements")?;
        if step.count.is_some_and(|n| index < n) {
            place.offset += index * step.scale;
            return Ok(place);
        }
        let at = self.constant(index);
        self.step(place, base, at)
    }

    /// The place of an element with an index in a register.
    /// A register that holds a known index within bounds is a constant step.
    pub(super) fn step(
        &mut self,
        mut place: AccessPlace,
        base: &TypeInner,
        at: Reg,
    ) -> LowerResult<AccessPlace> {
        let step = self.types.step(base, place.layout());
        let step = self.need(step, "an index into something that has no elements")?;
        if let (Some(&index), Some(n)) = (self.known.get(&at), step.count)
            && index < n
        {
            place.offset += index * step.scale;
            return Ok(place);
        }
        let bound = match step.count {
            Some(n) => IndexBound::Static(n),
            None => IndexBound::Runtime(self.length_slot(&place, step.scale)?),
        };
        place.dims.push(Dim { at, scale: step.scale, bound });
        Ok(place)
    }

    /// The entry of the length table for a runtime-sized array at this place.
    /// Equal arrays share the entry. WGSL allows such arrays in storage buffers only.
    pub(super) fn length_slot(&mut self, place: &AccessPlace, stride: u32) -> LowerResult<u32> {
        let Root::Memory(Mem::Binding(binding)) = place.root else {
            return self.fail("a runtime-sized array outside a binding");
        };
        let length = RuntimeLength { binding, offset: place.offset, stride };
        let next = self.code.lengths.len() as u32;
        let slot = *self.lengths.entry(length).or_insert(next);
        if slot == next {
            self.code.lengths.push(length);
        }
        Ok(slot)
    }

    /// One index, scale and bound that stand for all indices of a place, in units of `unit` layout units.
    /// A memory instruction has one index. Several are clamped one by one and summed, since each has a bound of its own. The sum then
    /// needs no bound, which `u32::MAX` says.
    pub(super) fn combine(&mut self, dims: &[Dim], unit: u32) -> LowerResult<Dim> {
        match *dims {
            [] => Ok(Dim { at: self.constant(0), scale: 0, bound: IndexBound::Static(1) }),
            // One index needs no instruction: the access itself clamps and scales it.
            [dim] => Ok(Dim { scale: dim.scale / unit, ..dim }),
            _ => {
                let mut sum: Option<Reg> = None;
                for dim in dims {
                    let d = self.take(dim.at.is_varying(), 1);
                    self.emit(Inst::Index { d, a: dim.at, bound: dim.bound })?;
                    let scale = self.constant(dim.scale / unit);
                    // A scale of one unit needs no product.
                    let term = if dim.scale == unit { d } else { self.bin(Bin::Mul, d, scale)? };
                    sum = Some(match sum {
                        Some(sum) => self.bin(Bin::Add, sum, term)?,
                        None => term,
                    });
                }
                let at = self.need(sum, "a place without indices")?;
                Ok(Dim { at, scale: 1, bound: IndexBound::Static(u32::MAX) })
            }
        }
    }

    /// Layout units that one address unit of a memory instruction has.
    /// Offsets and scales are multiples of it, because WGSL aligns every scalar to its size.
    pub(super) fn unit(layout: MemoryLayout, kind: Kind) -> u32 {
        match layout {
            MemoryLayout::Host => width(kind),
            MemoryLayout::Flat => 1,
        }
    }
}
