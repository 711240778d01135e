//! Products of matrices that the lanes of a subgroup hold together. Lane `i` holds elements `8 i` to `8 i + 7` of a matrix
//! of 16 by 16, row by row.
//!
//! These are naga's cooperative matrices, an extension of WGSL. In the VM a lane loads and stores its own 8 elements, and the product
//! alone works across lanes.

use super::place::{AccessPlace, Dim};
use super::types::width;
use super::{Lower, LowerResult};
use crate::code::{Bin, Builtin, HELD, IndexBound, Inst, Reg};
use naga::{CooperativeData, Expression, Handle, TypeInner};

/// The subgroup that holds a matrix.
/// 256 elements, [`HELD`] in each lane.
const LANES: u32 = 32;

impl Lower<'_> {
    /// Loads a matrix.
    /// The result has [`HELD`] registers.
    pub(super) fn load_matrix(&mut self, data: &CooperativeData) -> LowerResult<Vec<Reg>> {
        let (places, inner) = self.elements(data)?;
        let mut out = Vec::with_capacity(places.len());
        for place in places {
            out.extend(self.load(&place, &inner, false)?);
        }
        Ok(out)
    }

    /// Stores one.
    pub(super) fn store_matrix(
        &mut self,
        target: Handle<Expression>,
        data: &CooperativeData,
    ) -> LowerResult<()> {
        let value = self.regs(target)?;
        let (places, inner) = self.elements(data)?;
        for (place, reg) in places.iter().zip(value) {
            self.store(place, &inner, &[reg])?;
        }
        Ok(())
    }

    /// `a · b + c`.
    /// Operands are copied to consecutive registers, as [`Inst::MultiplyAdd`] addresses them.
    pub(super) fn multiply_add(&mut self, operands: [Handle<Expression>; 3]) -> LowerResult<Vec<Reg>> {
        let mut at = [self.constant(0); 3];
        for (at, operand) in at.iter_mut().zip(operands) {
            let held = self.regs(operand)?;
            *at = self.take(true, HELD);
            for (i, s) in held.into_iter().enumerate() {
                self.emit(Inst::Copy { d: at.offset(i as u32), s })?;
            }
        }
        let [a, b, c] = at;
        let d = self.take(true, HELD);
        self.emit(Inst::MultiplyAdd { d, a, b, c })?;
        Ok((0..HELD).map(|i| d.offset(i)).collect())
    }

    /// Where a lane's elements lie, and what each is.
    /// The pointer names the element at which the matrix begins. `stride` is the distance of rows, or of columns if the matrix is
    /// not row-major.
    ///
    /// Every element gets an index with the array's bound, so that one outside is clamped.
    fn elements(&mut self, data: &CooperativeData) -> LowerResult<(Vec<AccessPlace>, TypeInner)> {
        if self.choices.subgroup_size != LANES {
            return self.fail("matrices of subgroups that have no 32 lanes");
        }
        let function = self.frame().function;
        let (base, index) = match function.expressions[data.pointer] {
            Expression::Access { base, index } => (base, self.reg(index)?),
            Expression::AccessIndex { base, index } => (base, self.constant(index)),
            _ => return self.fail("a matrix that begins at no element of an array"),
        };
        let (array, place) = (self.pointee(self.type_of(base))?, self.place(base)?);
        let TypeInner::Array { base: element, .. } = array else {
            return self.fail("a matrix outside an array");
        };
        let (scalar, parts) = match *self.types.inner(element) {
            TypeInner::Scalar(scalar) => (scalar, 1),
            // Vectors of 3 have padding between them; scalars would not be evenly spaced.
            TypeInner::Vector { size, scalar } if size as u32 != 3 => (scalar, size as u32),
            _ => return self.fail("a matrix in an array of neither scalars nor vectors"),
        };
        let inner = TypeInner::Scalar(scalar);
        let kind = self.types.kind(&inner);
        let kind = self.need(kind, "a matrix of other than 16- or 32-bit scalars")?;
        let step = self.types.step(&array, place.layout());
        let step = self.need(step, "an array of unknown layout")?;
        let bound = match step.count {
            // Indices count scalars, so the bound does too.
            Some(count) => IndexBound::Static(count.saturating_mul(parts)),
            None => IndexBound::Runtime(self.length_slot(&place, width(kind))?),
        };
        // The index of the matrix is the only one that the code below forms.
        if !place.dims.is_empty() {
            return self.fail("a matrix in an array of arrays");
        }
        let scale = Self::unit(place.layout(), kind);
        let (parts, stride) = (self.constant(parts), self.reg(data.stride)?);
        let stride = self.bin(Bin::Mul, stride, parts)?;
        let first = self.bin(Bin::Mul, index, parts)?;
        let lane = self.builtin(Builtin::SubgroupInvocation);
        let (two, held) = (self.constant(2), self.constant(HELD));
        // 8 elements are half a row of 16: two lanes share a row.
        let row = self.bin(Bin::DivU, lane, two)?;
        let half = self.bin(Bin::RemU, lane, two)?;
        let column = self.bin(Bin::Mul, half, held)?;
        let mut places = Vec::with_capacity(HELD as usize);
        for i in 0..HELD {
            let i = self.constant(i);
            let column = self.bin(Bin::Add, column, i)?;
            let (far, near) = if data.row_major { (row, column) } else { (column, row) };
            let far = self.bin(Bin::Mul, far, stride)?;
            let within = self.bin(Bin::Add, far, near)?;
            let at = self.bin(Bin::Add, first, within)?;
            places.push(AccessPlace { dims: vec![Dim { at, scale, bound }], ..place.clone() });
        }
        Ok((places, inner))
    }
}
