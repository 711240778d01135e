//! Loads from and stores to places.
//!
//! A value is loaded or stored leaf by leaf. Variables live in registers, so their loads and stores are copies.

use super::place::{AccessPlace, Root};
use super::types::{Leaf, MemoryLayout, width};
use super::{Lower, LowerResult};
use crate::code::{Access, Inst, Reg};
use naga::TypeInner;

impl Lower<'_> {
    /// The entry of the access table; equal accesses share one.
    fn access_slot(&mut self, access: Access) -> u32 {
        let next = self.code.accesses.len() as u32;
        let slot = *self.accesses.entry(access).or_insert(next);
        if slot == next {
            self.code.accesses.push(access);
        }
        slot
    }

    /// The scalars of a value in memory, or an error for types that have none.
    fn leaves(&self, inner: &TypeInner, layout: MemoryLayout) -> LowerResult<Vec<Leaf>> {
        let leaves = self.types.leaves(inner, layout);
        self.need(leaves, "a value of a type that cannot be loaded or stored")
    }

    /// Loads a value. `share` allows the result to be the variable's own registers.
    /// Elements of a run share one address; a mask does not matter, since inactive lanes load a value that nobody reads.
    pub(super) fn load(
        &mut self,
        place: &AccessPlace,
        inner: &TypeInner,
        share: bool,
    ) -> LowerResult<Vec<Reg>> {
        if let Root::Variable(variable) = place.root {
            let count = self.types.scalars(inner);
            let count = self.need(count, "a variable of a type that has no values")?;
            return self.load_variable(variable, place, count, share);
        }
        let leaves = self.leaves(inner, place.layout())?;
        let mut out = Vec::with_capacity(leaves.len());
        let mut rest = leaves.as_slice();
        while let Some(&first) = rest.first() {
            let unit = Self::unit(place.layout(), first.kind);
            // Neighbouring scalars of one width are read by one instruction, which resolves the address once.
            let follows = |(i, l): (usize, &Leaf)| {
                width(l.kind) == width(first.kind) && l.offset == first.offset + i as u32 * unit
            };
            // At most four: a vector. Longer runs would need more views in the VM.
            let run = rest.iter().enumerate().take_while(|&(i, l)| follows((i, l))).count().min(4);
            let dim = self.combine(&place.dims, unit)?;
            let slot = self.memory_access(place, first, dim.scale, dim.bound, run as u32)?;
            let d = self.take(dim.at.is_varying(), run as u32);
            self.emit(Inst::Load { d, at: dim.at, access: slot })?;
            out.extend((0..run as u32).map(|i| d.offset(i)));
            rest = &rest[run..];
        }
        Ok(out)
    }

    /// The access of `count` scalars from a leaf on, with what [`Lower::combine`] made of the indices.
    fn memory_access(
        &mut self,
        place: &AccessPlace,
        leaf: Leaf,
        scale: u32,
        bound: crate::code::IndexBound,
        count: u32,
    ) -> LowerResult<u32> {
        let Root::Memory(mem) = place.root else { return self.fail("a memory access to a variable") };
        let unit = Self::unit(place.layout(), leaf.kind);
        let half = place.layout() == MemoryLayout::Host && unit == 2;
        // Exact: scalars are aligned to their width.
        let offset = (place.offset + leaf.offset) / unit;
        Ok(self.access_slot(Access { mem, scale, offset, bound, half, count }))
    }

    /// Reads `count` scalars of a variable. Only an index in a register needs [`Inst::VarRead`].
    fn load_variable(
        &mut self,
        variable: usize,
        place: &AccessPlace,
        count: u32,
        share: bool,
    ) -> LowerResult<Vec<Reg>> {
        let first = self.variables[variable].first.offset(place.offset);
        if place.dims.is_empty() {
            let regs = (0..count).map(|i| first.offset(i));
            return if share { Ok(regs.collect()) } else { regs.map(|r| self.copy(r)).collect() };
        }
        let dim = self.combine(&place.dims, 1)?;
        let bound = self.variable_bound(variable, place, dim.bound);
        let varying = self.variables[variable].varying || dim.at.is_varying();
        (0..count)
            .map(|i| {
                let d = self.take(varying, 1);
                self.emit(Inst::VarRead { d, base: first.offset(i), at: dim.at, scale: dim.scale, bound })?;
                Ok(d)
            })
            .collect()
    }

    /// The bound of a combined index into a variable: combined indices are already clamped one by one.
    /// Variables have fixed sizes, so a runtime bound cannot occur; 1 keeps the index at the start.
    fn variable_bound(&self, variable: usize, place: &AccessPlace, bound: crate::code::IndexBound) -> u32 {
        match bound {
            crate::code::IndexBound::Static(u32::MAX) => self.variables[variable].count - place.offset,
            crate::code::IndexBound::Static(n) => n,
            crate::code::IndexBound::Runtime(_) => 1,
        }
    }

    /// Stores a value in active lanes.
    /// Loads read several words at once; stores do not, since a mask applies to each lane.
    pub(super) fn store(&mut self, place: &AccessPlace, inner: &TypeInner, value: &[Reg]) -> LowerResult<()> {
        if let Root::Variable(variable) = place.root {
            return self.store_variable(variable, place, value);
        }
        let leaves = self.leaves(inner, place.layout())?;
        for (&leaf, &s) in leaves.iter().zip(value) {
            let unit = Self::unit(place.layout(), leaf.kind);
            let dim = self.combine(&place.dims, unit)?;
            let access = self.memory_access(place, leaf, dim.scale, dim.bound, 1)?;
            self.emit(Inst::Store { s, at: dim.at, access })?;
        }
        Ok(())
    }

    /// The single-word access of an atomic operation.
    /// Atomics have 32 bits, so the leaf is a whole word.
    pub(super) fn atomic_access(&mut self, place: &AccessPlace, leaf: Leaf) -> LowerResult<(Reg, u32)> {
        let unit = Self::unit(place.layout(), leaf.kind);
        let dim = self.combine(&place.dims, unit)?;
        Ok((dim.at, self.memory_access(place, leaf, dim.scale, dim.bound, 1)?))
    }

    /// Lets the instructions that have just computed `value` write to the variable itself. False if they cannot, because
    /// the value lives on, was computed elsewhere, or needs what it would overwrite.
    ///
    /// This saves the copy of most assignments, such as `sum = sum + x`. The instructions must be the last that were emitted, with no label
    /// behind their start, because code that jumps there would miss them.
    fn retarget(&mut self, targets: &[Reg], value: &[Reg]) -> bool {
        let n = value.len();
        let Some(start) = self.code.insts.len().checked_sub(n).filter(|&start| start >= self.last_label)
        else {
            return false;
        };
        let position = self.position;
        // A value with a later use must stay in a register of its own.
        let dies = |r: Reg| self.frame().owned.iter().any(|&(dies, owned)| owned == r && dies <= position);
        for (i, (&target, &s)) in targets.iter().zip(value).enumerate() {
            let same_class = target.is_varying() == s.is_varying();
            // Instruction `i` may overwrite its own operand, unless a check looks at operands afterwards.
            let keep = if self.choices.keep_operands { i + 1 } else { i };
            let reads_old = |inst: &Inst| targets[..keep].iter().any(|&t| inst.reads(t));
            let inst = &self.code.insts[start + i];
            if !same_class
                || inst.result() != Some(s)
                || !dies(s)
                || value[..i].contains(&s)
                || reads_old(inst)
            {
                return false;
            }
        }
        for (inst, &target) in self.code.insts[start..].iter_mut().zip(targets) {
            inst.set_result(target);
        }
        true
    }

    /// Stores to a variable in registers. It learns here whether the variable is varying.
    fn store_variable(&mut self, variable: usize, place: &AccessPlace, value: &[Reg]) -> LowerResult<()> {
        let home = self.variables[variable].home_depth;
        // Uniform values at uniform indices, stored by all lanes, keep the variable uniform.
        let same = value.iter().all(|r| !r.is_varying()) && place.dims.iter().all(|d| !d.at.is_varying());
        // Invocations that are active at the variable's home but not here must keep its value.
        let stays_convergent = self.ctrl[home..].iter().all(|c| !c.divergent);
        let stays_uniform = same && stays_convergent;
        if !self.variables[variable].varying && !stays_uniform {
            let id = self.variables[variable].id;
            self.facts.set_varying(id);
        }
        let first = self.variables[variable].first.offset(place.offset);
        if place.dims.is_empty() {
            // A value made of the variable's own registers must be read before any of them changes.
            let targets: Vec<_> = (0..value.len() as u32).map(|i| first.offset(i)).collect();
            // For example `v = v.yx`.
            let crossed = value.iter().enumerate().any(|(i, r)| targets[..i].contains(r));
            let value = if crossed {
                value.iter().map(|&r| self.copy(r)).collect::<LowerResult<Vec<_>>>()?
            } else {
                value.to_vec()
            };
            // Redirected instructions ignore the mask, so all lanes must be active.
            if stays_convergent && self.retarget(&targets, &value) {
                return Ok(());
            }
            for (d, s) in targets.into_iter().zip(value) {
                if d != s {
                    self.emit(Inst::Assign { d, s })?;
                }
            }
            return Ok(());
        }
        let dim = self.combine(&place.dims, 1)?;
        let bound = self.variable_bound(variable, place, dim.bound);
        for (i, &s) in value.iter().enumerate() {
            let base = first.offset(i as u32);
            self.emit(Inst::VarWrite { base, at: dim.at, scale: dim.scale, bound, s })?;
        }
        Ok(())
    }
}
