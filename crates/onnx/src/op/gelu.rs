//! `Gelu` of ONNX Runtime and its relatives. That of the standard stands in [`super::unary`].

use crate::array::{StridedWalk, broadcast_strides};
use crate::call::{Call, Outputs};
use crate::real::Real;

/// `x/2 · (1 + erf(x/√2))`.
fn exact<T: Real>(x: T) -> T {
    T::nearest(0.5) * x * (T::one() + (x * T::FRAC_1_SQRT_2()).erf())
}

/// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
fn by_tanh<T: Real>(x: T) -> T {
    let root = T::nearest((2.0 / std::f64::consts::PI).sqrt());
    T::nearest(0.5) * x * (T::one() + (root * (x + T::nearest(0.044715) * x * x * x)).tanh())
}

/// `f(x + bias)` for a bias that broadcasts to `x`, such as one number for each element of the last axis.
fn with_bias<T: Real>(call: &Call<'_>, f: impl Fn(T) -> T) -> Outputs {
    let mut x = call.array::<T>(0)?;
    if let Some(bias) = call.optional_array::<T>(1)? {
        let places = StridedWalk::new(&x.shape, &broadcast_strides(&bias.shape, &x.shape)?);
        x.data.iter_mut().zip(places).for_each(|(x, at)| *x += bias.data[at]);
    }
    call.like_first(x.map(f))
}

/// `BiasGelu` and `Gelu` of ONNX Runtime.
pub fn bias_gelu<T: Real>(call: &Call<'_>) -> Outputs {
    with_bias::<T>(call, exact)
}

/// `FastGelu` of ONNX Runtime.
pub fn fast_gelu<T: Real>(call: &Call<'_>) -> Outputs {
    with_bias::<T>(call, by_tanh)
}

/// `QuickGelu` of ONNX Runtime: `x / (1 + exp(−alpha·x))`.
pub fn quick_gelu<T: Real>(call: &Call<'_>) -> Outputs {
    let alpha = T::nearest(call.float_or("alpha", 1.702)?);
    call.like_first(call.array::<T>(0)?.map(|x| x / (T::one() + (-alpha * x).exp())))
}
