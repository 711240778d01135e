//! Numbers of any dtype: floats in the precision of a call, integers of every width and truths as `i128`.
//!
//! One wide type in the place of nine keeps generic functions small. Sums and products modulo 2¹²⁸
//! have the low bits of those in the dtype itself, and those are what is stored.

use crate::array::Array;
use crate::call::{Call, Outputs};
use crate::real::{Element, Int, with_int};
use tapml_graph::{DType, Error, Result, Tensor};

/// Integers of every width, and truths as 0 and 1. They are stored with the low bits of their dtype.
impl Element for i128 {
    fn read(tensor: &Tensor) -> Result<Vec<i128>> {
        /// Elements of one width, widened.
        fn wide<T: Int>(tensor: &Tensor) -> Result<Vec<i128>> {
            Ok(T::read(tensor)?.into_iter().map(Int::wide).collect())
        }
        match tensor.dtype() {
            DType::Bool => Ok(bool::read(tensor)?.into_iter().map(i128::from).collect()),
            dtype => with_int!(dtype, T => wide::<T>(tensor)),
        }
    }

    fn store(values: Vec<i128>, shape: Vec<usize>, dtype: DType) -> Result<Tensor> {
        /// The low bits of each number, which is how integers of ONNX wrap.
        fn narrow<T: Int>(values: &[i128], shape: Vec<usize>, dtype: DType) -> Result<Tensor> {
            T::store(values.iter().map(|&v| T::wrap(v)).collect(), shape, dtype)
        }
        match dtype {
            DType::Bool => bool::store(values.into_iter().map(|v| v != 0).collect(), shape, dtype),
            dtype => with_int!(dtype, T => narrow::<T>(&values, shape, dtype)),
        }
    }
}

/// What an operator adds, multiplies and compares. Integers wrap when they are stored.
pub trait Number: Element {
    /// The least and the greatest number of a dtype: what a maximum or a minimum of no elements is.
    fn bounds(dtype: DType) -> (Self, Self);
    /// The sum; of `i128` modulo 2¹²⁸.
    fn plus(self, other: Self) -> Self;
    /// The product; of `i128` modulo 2¹²⁸.
    fn times(self, other: Self) -> Self;
    /// 1. The name differs from `num_traits::One::one`, which [`crate::real::Real`] has.
    fn one_value() -> Self;

    /// Whether it is not a number.
    fn is_nan(self) -> bool {
        // Only a NaN has no order with itself (IEEE 754).
        self.partial_cmp(&self).is_none()
    }

    /// The greater of two; a NaN if one is.
    fn greater(self, other: Self) -> Self {
        // `f32::max` would drop a NaN. If `other` is one, the comparison is false and gives it.
        if self.is_nan() || self >= other { self } else { other }
    }

    /// The lesser of two; a NaN if one is.
    fn lesser(self, other: Self) -> Self {
        if self.is_nan() || self <= other { self } else { other }
    }
}

macro_rules! float_number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            // Infinities are the neutral elements of `max` and `min`, whatever float the dtype is.
            fn bounds(_: DType) -> ($type, $type) {
                (<$type>::NEG_INFINITY, <$type>::INFINITY)
            }

            fn plus(self, other: $type) -> $type {
                self + other
            }

            fn times(self, other: $type) -> $type {
                self * other
            }

            fn one_value() -> $type {
                1.0
            }
        }
    )*};
}

float_number!(f32, f64);

impl Number for i128 {
    fn bounds(dtype: DType) -> (i128, i128) {
        integer_bounds(dtype)
    }

    fn plus(self, other: i128) -> i128 {
        self.wrapping_add(other)
    }

    fn times(self, other: i128) -> i128 {
        self.wrapping_mul(other)
    }

    fn one_value() -> i128 {
        1
    }
}

/// The least and the greatest integer of a dtype; 0 and 1 of truths. Signed integers are in two's complement.
pub fn integer_bounds(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => (0, 1),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0, (1 << bits) - 1),
        _ => (-(1 << (bits.max(1) - 1)), (1 << (bits.max(1) - 1)) - 1),
    }
}

/// Calls a function generic over [`Number`]: in the precision of the call for floats, in `i128` for integers and truths.
///
/// The dtype of the tensors chooses the type at run time, so that one generic function serves all of them.
macro_rules! with_number {
    ($call:expr, $dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            dtype if !dtype.is_float() => {
                type $name = i128;
                $body
            }
            _ if $call.is_double() => {
                type $name = f64;
                $body
            }
            _ => {
                type $name = f32;
                $body
            }
        }
    };
}
pub(crate) use with_number;

/// Calls a function generic over [`Number`] that rounds nothing: in `f64` for floats, in `i128` for integers and truths.
///
/// `f64` holds every number of the other floats, so that one instance serves all. Nothing is computed that could round.
macro_rules! with_exact {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            dtype if dtype.is_float() => {
                type $name = f64;
                $body
            }
            _ => {
                type $name = i128;
                $body
            }
        }
    };
}
pub(crate) use with_exact;

impl Call<'_> {
    /// One output of truths.
    pub fn truths(&self, array: Array<bool>) -> Outputs {
        self.single_output(array, DType::Bool)
    }

    /// One output that was moved, or made without rounding.
    pub fn one_moved(&self, tensor: Tensor) -> Outputs {
        Ok(vec![Some(self.store_moved(tensor)?)])
    }

    /// A float attribute whose default the standard gives in `f32`.
    pub fn single<T: crate::real::Real>(&self, name: &'static str, default: f32) -> Result<T> {
        Ok(T::nearest(self.float_or(name, f64::from(default))?))
    }

    /// An attribute that has to be there.
    pub fn require_attribute<T>(&self, name: &'static str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::invalid(format!("the attribute `{name}` is missing")))
    }
}
