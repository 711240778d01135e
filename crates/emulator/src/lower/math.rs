//! Built-in functions on floats, integers, vectors and matrices. Formulas are those of WGSL section 17.
//!
//! A function of several operations is lowered to them, each rounded and flushed as the profile says. WGSL states the accuracy of
//! such functions as that of their formula.

use super::types::Kind;
use super::{Lower, LowerResult};
use crate::code::{Bin, Reg, Tri, Un};
use naga::{Expression, Handle, MathFunction as M, TypeInner};

/// An expression with its type.
type TypedExpression<'t> = (Handle<Expression>, &'t TypeInner);

impl Lower<'_> {
    /// Lowers a built-in function. Operands have the same number of components, except that a scalar goes with all of a vector.
    ///
    /// Operands are looked at in this order: functions of one instruction, packing, exponentials, then the rest by families.
    pub(super) fn math(
        &mut self,
        fun: M,
        arg: Handle<Expression>,
        more: [Option<Handle<Expression>>; 3],
    ) -> LowerResult<Vec<Reg>> {
        // The first argument decides which overload it is.
        let kind = self.kind_of(arg)?;
        let a = self.regs(arg)?;
        let mut rest = [Vec::new(), Vec::new(), Vec::new()];
        for (regs, expression) in rest.iter_mut().zip(more) {
            if let Some(expression) = expression {
                *regs = self.regs(expression)?;
            }
        }
        let [b, c, d] = &rest;
        if let Some(op) = plain_unary(fun, kind) {
            return a.into_iter().map(|r| self.float1(kind, op, r)).collect();
        }
        if let Some(op) = int_unary(fun, kind) {
            return a.into_iter().map(|r| self.un(op, r)).collect();
        }
        if let Some(packed) = self.packing(fun, &a)? {
            return Ok(packed);
        }
        if let Some(value) = self.exponential(fun, kind, &a)? {
            return Ok(value);
        }
        match fun {
            M::Dot
            | M::Cross
            | M::Distance
            | M::Length
            | M::Normalize
            | M::FaceForward
            | M::Reflect
            | M::Refract
            | M::Outer => self.geometry(fun, kind, &a, b, c),
            M::Transpose | M::Determinant => self.matrix(fun, kind, self.type_of(arg), &a),
            M::ExtractBits | M::InsertBits => self.bit_field(fun, kind, &a, [b, c, d]),
            // Four bytes of a word each; the sum is 32 bits wide.
            M::Dot4I8Packed => self.zip2(&a, b, |l, x, y| l.bin(Bin::DotI8, x, y)),
            M::Dot4U8Packed => self.zip2(&a, b, |l, x, y| l.bin(Bin::DotU8, x, y)),
            // The result is a struct: all fractions, then all whole parts.
            M::Modf => {
                let fraction: Vec<_> =
                    a.iter().map(|&r| self.un(Un::ModfFraction, r)).collect::<LowerResult<_>>()?;
                let whole: Vec<_> = a.iter().map(|&r| self.un(Un::TruncF, r)).collect::<LowerResult<_>>()?;
                Ok([fraction, whole].concat())
            }
            M::Frexp => {
                let fraction: Vec<_> =
                    a.iter().map(|&r| self.un(Un::FrexpFraction, r)).collect::<LowerResult<_>>()?;
                let exponent: Vec<_> =
                    a.iter().map(|&r| self.un(Un::FrexpExponent, r)).collect::<LowerResult<_>>()?;
                Ok([fraction, exponent].concat())
            }
            _ => self.componentwise(fun, kind, &a, b, c),
        }
    }

    /// Functions that work on each component by itself.
    /// `min` and `max` of floats do not round, so they are not settled.
    fn componentwise(
        &mut self,
        fun: M,
        kind: Kind,
        a: &[Reg],
        b: &[Reg],
        c: &[Reg],
    ) -> LowerResult<Vec<Reg>> {
        let (min, max) = match kind {
            Kind::I32 => (Bin::MinI, Bin::MaxI),
            Kind::U32 => (Bin::MinU, Bin::MaxU),
            _ => (Bin::MinF, Bin::MaxF),
        };
        match fun {
            M::Min => self.zip2(a, b, |l, x, y| l.bin(min, x, y)),
            M::Max => self.zip2(a, b, |l, x, y| l.bin(max, x, y)),
            // In this order, so that `low > high` gives `high`.
            M::Clamp => self.zip3(a, b, c, |l, x, low, high| {
                let x = l.bin(max, x, low)?;
                l.bin(min, x, high)
            }),
            M::Atan2 => self.zip2(a, b, |l, y, x| l.float2(kind, Bin::Atan2, y, x)),
            M::Pow => self.zip2(a, b, |l, x, y| l.float2(kind, Bin::Pow, x, y)),
            M::Ldexp => self.zip2(a, b, |l, x, e| l.float2(kind, Bin::Ldexp, x, e)),
            M::Step => self.zip2(a, b, |l, edge, x| l.bin(Bin::Step, edge, x)),
            M::Fma => self.zip3(a, b, c, |l, x, y, z| l.float3(kind, Tri::Fma, x, y, z)),
            M::Mix => self.zip3(a, b, c, |l, x, y, t| l.mix(kind, x, y, t)),
            M::SmoothStep => self.zip3(a, b, c, |l, low, high, x| l.smooth_step(kind, low, high, x)),
            // The factor is rounded to f32 before it multiplies.
            M::Radians => self.scale(kind, a, std::f32::consts::PI / 180.0),
            M::Degrees => self.scale(kind, a, 180.0 / std::f32::consts::PI),
            M::QuantizeToF16 => a.iter().map(|&r| self.un(Un::RoundHalf, r)).collect(),
            _ => self.fail(format!("the built-in function {fun:?} on {kind:?}")),
        }
    }

    /// Each component times a constant.
    fn scale(&mut self, kind: Kind, a: &[Reg], factor: f32) -> LowerResult<Vec<Reg>> {
        let factor = self.float_constant(factor);
        a.iter().map(|&r| self.float2(kind, Bin::MulF, r, factor)).collect()
    }

    /// `x·(1 - t) + y·t`.
    /// The form with two products: with a finite `x` it gives `y` exactly where `t` is 1.
    fn mix(&mut self, kind: Kind, x: Reg, y: Reg, t: Reg) -> LowerResult<Reg> {
        let one = self.float_constant(1.0);
        let rest = self.float2(kind, Bin::SubF, one, t)?;
        let left = self.float2(kind, Bin::MulF, x, rest)?;
        let right = self.float2(kind, Bin::MulF, y, t)?;
        self.float2(kind, Bin::AddF, left, right)
    }

    /// `t²·(3 - 2t)` with `t = clamp((x - low)/(high - low), 0, 1)`.
    /// Saturating does not round, so `t` needs no settling.
    fn smooth_step(&mut self, kind: Kind, low: Reg, high: Reg, x: Reg) -> LowerResult<Reg> {
        let above = self.float2(kind, Bin::SubF, x, low)?;
        let width = self.float2(kind, Bin::SubF, high, low)?;
        let t = self.float2(kind, Bin::DivF, above, width)?;
        let t = self.un(Un::SaturateF, t)?;
        let (two, three) = (self.float_constant(2.0), self.float_constant(3.0));
        let twice = self.float2(kind, Bin::MulF, two, t)?;
        let factor = self.float2(kind, Bin::SubF, three, twice)?;
        let square = self.float2(kind, Bin::MulF, t, t)?;
        self.float2(kind, Bin::MulF, square, factor)
    }

    /// Exponential functions, which the `fast-math` profile approximates.
    /// `None` for any other function.
    /// Only `exp`, `log` and `tanh` have fast forms; `exp2` and `log2` are the library's in every profile.
    fn exponential(&mut self, fun: M, kind: Kind, a: &[Reg]) -> LowerResult<Option<Vec<Reg>>> {
        let fast = self.choices.arithmetic.fast;
        let op = match fun {
            M::Exp => {
                if fast {
                    Un::ExpFast
                } else {
                    Un::Exp
                }
            }
            M::Log => {
                if fast {
                    Un::LogFast
                } else {
                    Un::Log
                }
            }
            M::Tanh if fast => {
                let value = a.iter().map(|&x| self.fast_tanh(kind, x)).collect::<LowerResult<_>>()?;
                return Ok(Some(value));
            }
            M::Tanh => Un::Tanh,
            _ => return Ok(None),
        };
        Ok(Some(a.iter().map(|&r| self.float1(kind, op, r)).collect::<LowerResult<_>>()?))
    }

    /// `(e^2x - 1)/(e^2x + 1)`: gives NaN where the exponential overflows, as some drivers do.
    fn fast_tanh(&mut self, kind: Kind, x: Reg) -> LowerResult<Reg> {
        let (one, two) = (self.float_constant(1.0), self.float_constant(2.0));
        let twice = self.float2(kind, Bin::MulF, two, x)?;
        let e = self.float1(kind, Un::ExpFast, twice)?;
        let above = self.float2(kind, Bin::SubF, e, one)?;
        let below = self.float2(kind, Bin::AddF, e, one)?;
        self.float2(kind, Bin::DivF, above, below)
    }

    /// A sum from the first component to the last. The `fast-math` profile fuses each product into it.
    /// WGSL gives it the error of its formula and leaves the order open.
    fn dot(&mut self, kind: Kind, a: &[Reg], b: &[Reg]) -> LowerResult<Reg> {
        let (mul, add) = if kind.is_float() { (Bin::MulF, Bin::AddF) } else { (Bin::Mul, Bin::Add) };
        let mut sum: Option<Reg> = None;
        for (&x, &y) in a.iter().zip(b) {
            if let (Some(s), true, true) = (sum, kind.is_float(), self.choices.arithmetic.contract) {
                sum = Some(self.float3(kind, Tri::Fma, x, y, s)?);
                continue;
            }
            let product = self.operate(kind, mul, x, y)?;
            sum = Some(match sum {
                Some(s) => self.operate(kind, add, s, product)?,
                None => product,
            });
        }
        self.need(sum, "a dot product of empty vectors")
    }

    /// An operation of floats that is settled, or of integers that wraps.
    fn operate(&mut self, kind: Kind, op: Bin, x: Reg, y: Reg) -> LowerResult<Reg> {
        if kind.is_float() { self.float2(kind, op, x, y) } else { self.bin(op, x, y) }
    }

    /// `sqrt(dot(a, a))`; it overflows where the square does.
    /// Of a scalar it is the absolute value.
    fn length(&mut self, kind: Kind, a: &[Reg]) -> LowerResult<Reg> {
        if let [x] = *a {
            return self.un(Un::AbsF, x);
        }
        let square = self.dot(kind, a, a)?;
        self.float1(kind, Un::SqrtF, square)
    }

    /// Functions of vectors as a whole.
    /// `a`, `b` and `c` are the arguments in order; unused ones are empty.
    fn geometry(&mut self, fun: M, kind: Kind, a: &[Reg], b: &[Reg], c: &[Reg]) -> LowerResult<Vec<Reg>> {
        match fun {
            M::Dot => Ok(vec![self.dot(kind, a, b)?]),
            M::Length => Ok(vec![self.length(kind, a)?]),
            M::Distance => {
                let between = self.zip2(a, b, |l, x, y| l.float2(kind, Bin::SubF, x, y))?;
                Ok(vec![self.length(kind, &between)?])
            }
            // A vector of length 0 gives NaN, as the formula does.
            M::Normalize => {
                let length = self.length(kind, a)?;
                self.zip2(a, &[length], |l, x, y| l.float2(kind, Bin::DivF, x, y))
            }
            M::Cross => (0..3)
                .map(|i| {
                    // Component i has the two others, in cyclic order.
                    let (j, k) = ((i + 1) % 3, (i + 2) % 3);
                    let left = self.float2(kind, Bin::MulF, a[j], b[k])?;
                    let right = self.float2(kind, Bin::MulF, a[k], b[j])?;
                    self.float2(kind, Bin::SubF, left, right)
                })
                .collect(),
            // Column by column: `b` names the column.
            M::Outer => {
                let pairs = b.iter().flat_map(|&y| a.iter().map(move |&x| (x, y)));
                pairs.map(|(x, y)| self.float2(kind, Bin::MulF, x, y)).collect()
            }
            // `select(-e1, e1, dot(e2, e3) < 0.0)`.
            M::FaceForward => {
                let (zero, d) = (self.float_constant(0.0), self.dot(kind, b, c)?);
                let keep = self.bin(Bin::LtF, d, zero)?;
                let negated = a.iter().map(|&x| self.un(Un::NegF, x)).collect::<LowerResult<Vec<_>>>()?;
                self.zip3(&negated, a, &[keep], |l, n, x, k| l.tri(Tri::Select, n, x, k))
            }
            M::Reflect => self.reflect(kind, a, b),
            _ => self.refract(kind, a, b, c[0]),
        }
    }

    /// `a - 2·dot(b, a)·b`.
    fn reflect(&mut self, kind: Kind, a: &[Reg], b: &[Reg]) -> LowerResult<Vec<Reg>> {
        let (two, d) = (self.float_constant(2.0), self.dot(kind, b, a)?);
        let twice = self.float2(kind, Bin::MulF, two, d)?;
        let along = self.zip2(b, &[twice], |l, x, y| l.float2(kind, Bin::MulF, x, y))?;
        self.zip2(a, &along, |l, x, y| l.float2(kind, Bin::SubF, x, y))
    }

    /// `r·a - (r·d + √k)·b` with `d = dot(b, a)`, `k = 1 - r²(1 - d²)`; zero where `k < 0`.
    fn refract(&mut self, kind: Kind, a: &[Reg], b: &[Reg], ratio: Reg) -> LowerResult<Vec<Reg>> {
        let (zero, one) = (self.float_constant(0.0), self.float_constant(1.0));
        let d = self.dot(kind, b, a)?;
        let d2 = self.float2(kind, Bin::MulF, d, d)?;
        let rest = self.float2(kind, Bin::SubF, one, d2)?;
        let r2 = self.float2(kind, Bin::MulF, ratio, ratio)?;
        let bent = self.float2(kind, Bin::MulF, r2, rest)?;
        let k = self.float2(kind, Bin::SubF, one, bent)?;
        // Total reflection. The root is NaN there, but its value is not selected.
        let inside = self.bin(Bin::LtF, k, zero)?;
        let root = self.float1(kind, Un::SqrtF, k)?;
        let rd = self.float2(kind, Bin::MulF, ratio, d)?;
        let factor = self.float2(kind, Bin::AddF, rd, root)?;
        self.zip2(a, b, |l, x, y| {
            let left = l.float2(kind, Bin::MulF, ratio, x)?;
            let right = l.float2(kind, Bin::MulF, factor, y)?;
            let value = l.float2(kind, Bin::SubF, left, right)?;
            l.tri(Tri::Select, value, zero, inside)
        })
    }

    /// `transpose` and `determinant`. Scalars go column by column: element (c, r) is at `c * rows + r`.
    /// WGSL has determinants of square matrices only, up to 4 by 4.
    fn matrix(&mut self, fun: M, kind: Kind, ty: &TypeInner, a: &[Reg]) -> LowerResult<Vec<Reg>> {
        let TypeInner::Matrix { columns, rows, .. } = *ty else {
            return self.fail("a matrix function on no matrix");
        };
        let (columns, rows) = (columns as usize, rows as usize);
        if fun == M::Transpose {
            return Ok((0..rows).flat_map(|r| (0..columns).map(move |c| a[c * rows + r])).collect());
        }
        Ok(vec![self.determinant(kind, a, columns)?])
    }

    /// By cofactors of the first column.
    /// It takes `n!` products, 24 for the largest matrix.
    fn determinant(&mut self, kind: Kind, a: &[Reg], n: usize) -> LowerResult<Reg> {
        if n == 1 {
            return Ok(a[0]);
        }
        let mut sum: Option<Reg> = None;
        for row in 0..n {
            // Without the first column and this row.
            let kept = |c: usize, r: usize| c != 0 && r != row;
            let cells = (0..n).flat_map(|c| (0..n).map(move |r| (c, r))).filter(|&(c, r)| kept(c, r));
            let minor: Vec<_> = cells.map(|(c, r)| a[c * n + r]).collect();
            let minor = self.determinant(kind, &minor, n - 1)?;
            let term = self.float2(kind, Bin::MulF, a[row], minor)?;
            // Signs of the cofactors alternate.
            sum = Some(match sum {
                None => term,
                Some(s) => self.float2(kind, if row % 2 == 0 { Bin::AddF } else { Bin::SubF }, s, term)?,
            });
        }
        self.need(sum, "an empty matrix")
    }

    /// Products with a matrix; `None` if neither operand is one or one is a scalar.
    /// Column `c` of the result is the left operand times column `c` of the right one.
    pub(super) fn matrix_product(
        &mut self,
        left: TypedExpression<'_>,
        right: TypedExpression<'_>,
    ) -> LowerResult<Option<Vec<Reg>>> {
        let shape = |ty: &TypeInner| match *ty {
            TypeInner::Matrix { columns, rows, .. } => Some((columns as usize, rows as usize)),
            _ => None,
        };
        let is_scalar = |ty: &TypeInner| matches!(ty, TypeInner::Scalar(_));
        let (ls, rs) = (shape(left.1), shape(right.1));
        if (ls.is_none() && rs.is_none()) || is_scalar(left.1) || is_scalar(right.1) {
            return Ok(None);
        }
        let kind = self.kind_of(left.0)?;
        let (a, b) = (self.regs(left.0)?, self.regs(right.0)?);
        // A vector on the left is a row, on the right a column.
        let (inner, rows) = ls.unwrap_or((a.len(), 1));
        let columns = rs.map_or(1, |(columns, _)| columns);
        let mut out = Vec::with_capacity(rows * columns);
        for column in 0..columns {
            for row in 0..rows {
                let line: Vec<_> = (0..inner).map(|k| a[k * rows + row]).collect();
                out.push(self.dot(kind, &line, &b[column * inner..(column + 1) * inner])?);
            }
        }
        Ok(Some(out))
    }
}

/// Functions that are one float instruction.
/// `None` for integers, and for functions that take more than one instruction.
fn plain_unary(fun: M, kind: Kind) -> Option<Un> {
    if !kind.is_float() {
        return None;
    }
    Some(match fun {
        M::Abs => Un::AbsF,
        M::Saturate => Un::SaturateF,
        M::Cos => Un::Cos,
        M::Cosh => Un::Cosh,
        M::Sin => Un::Sin,
        M::Sinh => Un::Sinh,
        M::Tan => Un::Tan,
        M::Acos => Un::Acos,
        M::Asin => Un::Asin,
        M::Atan => Un::Atan,
        M::Asinh => Un::Asinh,
        M::Acosh => Un::Acosh,
        M::Atanh => Un::Atanh,
        M::Ceil => Un::CeilF,
        M::Floor => Un::FloorF,
        M::Round => Un::RoundF,
        M::Fract => Un::FractF,
        M::Trunc => Un::TruncF,
        M::Exp2 => Un::Exp2,
        M::Log2 => Un::Log2,
        M::Sign => Un::SignF,
        M::Sqrt => Un::SqrtF,
        M::InverseSqrt => Un::InverseSqrtF,
        _ => return None,
    })
}

/// Functions that are one integer instruction.
/// `None` for floats, and for functions that take more than one instruction.
fn int_unary(fun: M, kind: Kind) -> Option<Un> {
    let signed = match kind {
        Kind::I32 => true,
        Kind::U32 => false,
        _ => return None,
    };
    Some(match fun {
        M::Abs if signed => Un::AbsI,
        M::Sign if signed => Un::SignI,
        M::CountTrailingZeros => Un::Ctz,
        M::CountLeadingZeros => Un::Clz,
        M::CountOneBits => Un::Popcount,
        M::ReverseBits => Un::Reverse,
        M::FirstTrailingBit => Un::FirstTrailing,
        M::FirstLeadingBit => {
            if signed {
                Un::FirstLeadingI
            } else {
                Un::FirstLeadingU
            }
        }
        _ => return None,
    })
}
