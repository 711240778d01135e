//! The numbers that operators compute with: floats in two precisions and integers that wrap.
//!
//! Floats of 16 bits are read into `f32` or `f64` and rounded when they are stored: no operator computes in them.
//! An integer is read in its own width alone, so that a wrong dtype is an error and no silent conversion.

use crate::gemm::Gemm;
use std::fmt::Debug;
use std::ops::AddAssign;
use tapml_graph::{DType, Error, Result, Tensor};

/// `f32` or `f64`.
pub trait Real: num_traits::Float + num_traits::FloatConst + AddAssign + std::iter::Sum + Element {
    /// The number nearest to this one, by round-to-nearest-even of IEEE 754.
    fn nearest(value: f64) -> Self;
    /// The same number.
    fn wide(self) -> f64;
    /// The error function, `2/√π · ∫₀ˣ exp(−t²) dt`.
    fn erf(self) -> Self;
    /// `c[i, j] = Σ_k a[i, k]·b[k, j]` on this thread; see [`Gemm`].
    fn gemm(gemm: Gemm<'_, Self>);

    /// A count as a number, rounded if the type has no such integer.
    fn count(value: usize) -> Self {
        Self::nearest(value as f64)
    }
}

impl Real for f32 {
    fn nearest(value: f64) -> f32 {
        value as f32
    }

    fn wide(self) -> f64 {
        f64::from(self)
    }

    fn erf(self) -> f32 {
        libm::erff(self)
    }

    fn gemm(gemm: Gemm<'_, f32>) {
        gemm.run(matrixmultiply::sgemm);
    }
}

impl Real for f64 {
    fn nearest(value: f64) -> f64 {
        value
    }

    fn wide(self) -> f64 {
        self
    }

    fn erf(self) -> f64 {
        libm::erf(self)
    }

    fn gemm(gemm: Gemm<'_, f64>) {
        gemm.run(matrixmultiply::dgemm);
    }
}

/// What an array holds.
pub trait Element: Copy + Default + PartialOrd + PartialEq + Debug + Send + Sync + 'static {
    /// The numbers of a tensor: of any float for a float, of this dtype alone for an integer.
    ///
    /// # Errors
    /// If the tensor has another dtype.
    fn read(tensor: &Tensor) -> Result<Vec<Self>>;

    /// A tensor of these numbers, rounded to `dtype`, which is a float for a float, else this one.
    ///
    /// # Errors
    /// Of kind `Bug` if `dtype` is another: callers choose it. If the shape has another number of elements.
    fn store(values: Vec<Self>, shape: Vec<usize>, dtype: DType) -> Result<Tensor>;
}

/// [`Element`] for a float: `$read` converts from any float, `$store` rounds to any float.
macro_rules! float_element {
    ($type:ty, $read:expr, $store:expr) => {
        impl Element for $type {
            fn read(tensor: &Tensor) -> Result<Vec<$type>> {
                if tensor.dtype().is_float() {
                    Ok($read(tensor))
                } else {
                    Err(Error::unsupported(format!("expected floats, found {}", tensor.dtype())))
                }
            }

            fn store(values: Vec<$type>, shape: Vec<usize>, dtype: DType) -> Result<Tensor> {
                if dtype.is_float() {
                    $store(dtype, shape, values)
                } else {
                    Err(Error::bug(format!("floats are not stored as {dtype}")))
                }
            }
        }
    };
}

float_element!(f32, |tensor: &Tensor| tensor.to_f32().into_owned(), Tensor::from_f32_as);
float_element!(f64, |tensor: &Tensor| tensor.to_f64(), |dtype, shape, values: Vec<f64>| {
    Tensor::from_f64(dtype, shape, &values)
});

/// Arithmetic of integers, which wraps.
pub trait Int: Element + num_traits::PrimInt + num_traits::WrappingAdd + num_traits::WrappingSub {
    /// The product modulo two to the power of the width.
    fn times(self, other: Self) -> Self;
    /// The low bits of this number.
    fn wrap(value: i128) -> Self;
    /// The same number.
    fn wide(self) -> i128;
}

/// [`Element`] and [`Int`] for integers, each with the one dtype that it is read from and stored as.
macro_rules! int_element {
    ($($type:ident $dtype:ident),*) => {$(
        impl Element for $type {
            fn read(tensor: &Tensor) -> Result<Vec<$type>> {
                if tensor.dtype() != DType::$dtype {
                    return Err(Error::invalid(format!("expected {}, found {}", DType::$dtype, tensor.dtype())));
                }
                // Bytes of a tensor may lie at any address, so that they are not cast to a slice of integers.
                let (chunks, _) = tensor.bytes().as_chunks::<{ size_of::<$type>() }>();
                Ok(chunks.iter().map(|&bytes| $type::from_le_bytes(bytes)).collect())
            }

            fn store(values: Vec<$type>, shape: Vec<usize>, dtype: DType) -> Result<Tensor> {
                if dtype != DType::$dtype {
                    return Err(Error::bug(format!("{} are not stored as {dtype}", DType::$dtype)));
                }
                let bytes = bytemuck::cast_slice::<$type, u8>(&values).to_vec();
                Tensor::new(dtype, shape, tapml_graph::Bytes::new(bytes))
            }
        }

        impl Int for $type {
            fn times(self, other: $type) -> $type {
                self.wrapping_mul(other)
            }

            fn wrap(value: i128) -> $type {
                // `as` between integers keeps the low bits.
                value as $type
            }

            fn wide(self) -> i128 {
                i128::from(self)
            }
        }
    )*};
}

int_element!(i8 I8, u8 U8, i16 I16, u16 U16, i32 I32, u32 U32, i64 I64, u64 U64);

impl Element for bool {
    fn read(tensor: &Tensor) -> Result<Vec<bool>> {
        match tensor.dtype() {
            // A file may hold any byte for a truth.
            DType::Bool => Ok(tensor.bytes().iter().map(|&b| b != 0).collect()),
            other => Err(Error::invalid(format!("expected bool, found {other}"))),
        }
    }

    fn store(values: Vec<bool>, shape: Vec<usize>, dtype: DType) -> Result<Tensor> {
        match dtype {
            DType::Bool => {
                let bytes = values.into_iter().map(u8::from).collect::<Vec<u8>>();
                Tensor::new(dtype, shape, tapml_graph::Bytes::new(bytes))
            }
            other => Err(Error::bug(format!("truths are not stored as {other}"))),
        }
    }
}

/// Calls a function generic over [`Int`] for an integer dtype.
macro_rules! with_int {
    ($dtype:expr, $name:ident => $body:expr) => {{
        use tapml_graph::DType;
        // `$body` is compiled once for each width, with `$name` as the type.
        macro_rules! arm {
            ($type:ty) => {{
                type $name = $type;
                $body
            }};
        }
        match $dtype {
            DType::I8 => arm!(i8),
            DType::U8 => arm!(u8),
            DType::I16 => arm!(i16),
            DType::U16 => arm!(u16),
            DType::I32 => arm!(i32),
            DType::U32 => arm!(u32),
            DType::I64 => arm!(i64),
            DType::U64 => arm!(u64),
            other => Err(tapml_graph::Error::unsupported(format!("not served for {other}"))),
        }
    }};
}
pub(crate) use with_int;
