//! The number types of the reference, `f32` and `f64`, and the few functions that evaluations need of them.
//!
//! The functions are those of the standard library and of `libm`. Their last digit may differ between platforms.

use crate::array::Value;
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
    + crate::lanes::Lanes
    + sealed::TypeKernels
{
    /// The dtype that holds this type's values.
    const DTYPE: DType;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;

    /// The same value in this type.
    fn from_f32(value: f32) -> Self;
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
    pub trait TypeKernels: Sized {
        /// Values of a float tensor, exact when this type is at least as wide as the tensor's.
        fn widen(tensor: &Tensor) -> Vec<Self>;
        /// Writes the values of this range of a tensor of `f16`, `bf16` or `f32`; those of any other dtype become zeros.
        fn widen_part(tensor: &Tensor, range: std::ops::Range<usize>, into: &mut [Self]);
        /// Values rounded to odd in `f32`: rounding these again to 16 bits rounds the given ones only once.
        fn to_f32_odd(values: &[Self]) -> Vec<f32>;
        /// See [`crate::eval`].
        fn eval(op: &Op, symbols: &Symbols, inputs: &[Value<Self>]) -> Result<Vec<Value<Self>>>;
    }
}

/// [`Real`] for a float of Rust, with what differs between the two.
macro_rules! real {
    ($ty:ident, $dtype:expr, erfc = $erfc:path) => {
        impl Real for $ty {
            const DTYPE: DType = $dtype;
            const ZERO: $ty = 0.0;
            const ONE: $ty = 1.0;
            const NEG_INFINITY: $ty = $ty::NEG_INFINITY;

            #[inline(always)]
            fn from_f32(value: f32) -> $ty {
                value as $ty
            }
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
    };
}

real!(f32, DType::F32, erfc = libm::erfcf);
real!(f64, DType::F64, erfc = libm::erfc);
