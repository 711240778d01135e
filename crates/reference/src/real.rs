//! The number types of the reference, `f32` and `f64`, and the few functions that evaluations need of them.

use crate::value::Value;
use half::slice::HalfFloatSliceExt;
use std::fmt::{Debug, Display};
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use tapml_graph::{DType, Op, Result, Symbols, Tensor};

/// A number type to evaluate in. Implemented by `f32` and `f64` only.
pub trait Real:
    bytemuck::Pod
    + Add<Output = Self>
    + AddAssign
    + Debug
    + Display
    + Div<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + PartialOrd
    + Send
    + Sub<Output = Self>
    + Sync
    + crate::simd::Lanes
    + sealed::Kernels
{
    /// The dtype that holds this type's values.
    const DTYPE: DType;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;

    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// The same value as `f64`.
    fn to_f64(self) -> f64;
    /// `e` to this power.
    fn exp(self) -> Self;
    /// Natural logarithm of `1 + self`.
    fn ln_1p(self) -> Self;
    /// Complementary error function.
    fn erfc(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Sine and cosine of an angle in radians.
    fn sin_cos(self) -> (Self, Self);
    /// The larger of two values; the other one if one is NaN.
    fn max(self, other: Self) -> Self;
}

pub(crate) mod sealed {
    use super::{Op, Result, Symbols, Tensor, Value};

    /// What is compiled once per type in this crate, so that its optimisation level holds for every caller.
    pub trait Kernels: Sized {
        /// Values of a float tensor, exact when this type is at least as wide as the tensor's.
        fn widen(tensor: &Tensor) -> Vec<Self>;
        /// Appends values of this range of a tensor of `f16`, `bf16` or `f32`; those of any other dtype become zeros.
        fn widen_part(tensor: &Tensor, range: std::ops::Range<usize>, into: &mut Vec<Self>);
        /// Values rounded to odd in `f32`: rounding these again to 16 bits rounds the given ones only once.
        fn to_f32_odd(values: &[Self]) -> Vec<f32>;
        /// See [`crate::eval`].
        fn eval(op: &Op, symbols: &Symbols, inputs: &[Value<Self>]) -> Result<Vec<Value<Self>>>;
        /// One GEMM on this thread; see [`crate::matmul`].
        fn gemm(job: crate::matmul::Gemm<'_, Self>);
    }
}

/// Numbers that are converted at a time: few enough to stay in the first cache.
const PIECE: usize = 1024;

/// Numbers of `f16`, `bf16` or `f32` as `f32`; zeros for any other dtype.
fn to_f32(dtype: DType, bytes: &[u8], into: &mut [f32]) {
    let pairs = || bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
    match dtype {
        DType::F16 => {
            let mut halves = [half::f16::ZERO; PIECE];
            halves.iter_mut().zip(pairs()).for_each(|(to, bits)| *to = half::f16::from_bits(bits));
            halves[..into.len()].convert_to_f32_slice(into);
        }
        DType::BF16 => {
            into.iter_mut().zip(pairs()).for_each(|(to, bits)| *to = f32::from_bits(u32::from(bits) << 16))
        }
        DType::F32 => {
            let words = bytes.as_chunks::<4>().0.iter();
            into.iter_mut().zip(words).for_each(|(to, word)| *to = f32::from_le_bytes(*word));
        }
        _ => into.fill(0.0),
    }
}

macro_rules! real {
    ($ty:ident, $dtype:expr, erfc = $erfc:path, widen = $widen:expr, odd = $odd:expr, gemm = $gemm:path) => {
        impl Real for $ty {
            const DTYPE: DType = $dtype;
            const ZERO: $ty = 0.0;
            const ONE: $ty = 1.0;
            const NEG_INFINITY: $ty = $ty::NEG_INFINITY;

            fn from_f64(value: f64) -> $ty {
                value as $ty
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> $ty {
                $ty::exp(self)
            }
            fn ln_1p(self) -> $ty {
                $ty::ln_1p(self)
            }
            fn erfc(self) -> $ty {
                $erfc(self)
            }
            fn tanh(self) -> $ty {
                $ty::tanh(self)
            }
            fn sqrt(self) -> $ty {
                $ty::sqrt(self)
            }
            fn sin_cos(self) -> ($ty, $ty) {
                $ty::sin_cos(self)
            }
            #[inline(always)]
            fn max(self, other: $ty) -> $ty {
                $ty::max(self, other)
            }
        }

        impl sealed::Kernels for $ty {
            fn widen(tensor: &Tensor) -> Vec<$ty> {
                $widen(tensor)
            }
            fn widen_part(tensor: &Tensor, range: std::ops::Range<usize>, into: &mut Vec<$ty>) {
                let bytes =
                    &tensor.bytes()[range.start * tensor.dtype().size()..range.end * tensor.dtype().size()];
                let mut piece = [0.0f32; PIECE];
                into.reserve(range.len());
                for bytes in bytes.chunks(PIECE * tensor.dtype().size()) {
                    let piece = &mut piece[..bytes.len() / tensor.dtype().size()];
                    to_f32(tensor.dtype(), bytes, piece);
                    into.extend(piece.iter().map(|&v| v as $ty));
                }
            }
            fn to_f32_odd(values: &[$ty]) -> Vec<f32> {
                values.iter().map($odd).collect()
            }
            fn eval(op: &Op, symbols: &Symbols, inputs: &[Value<$ty>]) -> Result<Vec<Value<$ty>>> {
                crate::eval::evaluate(op, symbols, inputs)
            }
            fn gemm(job: crate::matmul::Gemm<'_, $ty>) {
                job.run($gemm);
            }
        }
    };
}

real!(
    f32,
    DType::F32,
    erfc = libm::erfcf,
    widen = |t: &Tensor| t.to_f32().into_owned(),
    odd = |&v| v,
    gemm = matrixmultiply::sgemm
);
real!(
    f64,
    DType::F64,
    erfc = libm::erfc,
    widen = Tensor::to_f64,
    odd = |&v| round_to_odd(v),
    gemm = matrixmultiply::dgemm
);

/// The `f32` next to `value` whose last bit is set, unless `value` is itself an `f32`.
/// Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008, section 3.
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || nearest.is_nan() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // The nearest one is even; the odd neighbour on the other side of `value` is one step of the bit pattern away,
    // which moves away from zero if added.
    let away = (value.abs() > f64::from(nearest.abs())) as u32;
    f32::from_bits(nearest.to_bits().wrapping_add(away).wrapping_sub(1 - away))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_odd_keeps_f32_values_and_brackets_the_others() {
        for value in [0.0, -0.0, 1.5, -3.25, f64::INFINITY, 1e-40f32 as f64] {
            assert_eq!(round_to_odd(value).to_bits(), (value as f32).to_bits());
        }
        for value in [0.1, -0.1, 1.0 + 1e-12, 1.0 - 1e-12, 1e-44 * 1.3, 1e300, -1e-300] {
            let odd = round_to_odd(value);
            assert_eq!(odd.to_bits() & 1, 1, "{value}");
            let (low, high) = (odd.next_down(), odd.next_up());
            assert!(f64::from(low) < value && value < f64::from(high) || odd == f32::MAX, "{value} {odd}");
        }
        assert!(round_to_odd(f64::NAN).is_nan());
    }
}
