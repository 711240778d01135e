//! Operators that compute each element from the elements at its place: `Add`, `Relu`, and what [`super::binary`] builds on.

use crate::array::{Array, StridedWalk, broadcast_shape, broadcast_strides, volume};
use crate::call::{Call, Outputs};
use crate::real::{Element, Int, Real, with_int};
use tapml_graph::Result;

/// A function of two arrays that broadcast.
///
/// # Errors
/// If the shapes do not broadcast, or the result has too many elements.
pub fn binary<A: Element, B: Element, R>(
    a: &Array<A>,
    b: &Array<B>,
    f: impl Fn(A, B) -> R,
) -> Result<Array<R>> {
    let shape = broadcast_shape([a.shape.as_slice(), &b.shape])?;
    volume(&shape)?;
    let (left, right) = (broadcast_strides(&a.shape, &shape)?, broadcast_strides(&b.shape, &shape)?);
    let places = StridedWalk::new(&shape, &left).zip(StridedWalk::new(&shape, &right));
    let data = places.map(|(left, right)| f(a.data[left], b.data[right])).collect();
    Ok(Array { shape, data })
}

/// `a + b`. Integers wrap in their own width.
pub fn add(call: &Call<'_>) -> Outputs {
    fn float<T: Real>(call: &Call<'_>) -> Outputs {
        call.like_first(binary(&call.array::<T>(0)?, &call.array::<T>(1)?, |a, b| a + b)?)
    }
    fn int<T: Int>(call: &Call<'_>) -> Outputs {
        call.like_first(binary(&call.array::<T>(0)?, &call.array::<T>(1)?, |a, b| a.wrapping_add(&b))?)
    }
    match call.dtype(0)? {
        dtype if !dtype.is_float() => with_int!(dtype, T => int::<T>(call)),
        _ if call.is_double() => float::<f64>(call),
        _ => float::<f32>(call),
    }
}

/// `max(x, 0)`; a NaN stays one.
pub fn relu(call: &Call<'_>) -> Outputs {
    fn relu_typed<T: Element>(call: &Call<'_>) -> Outputs {
        let zero = T::default();
        // `max` would drop a NaN; the comparison is false for it and keeps it.
        call.like_first(call.array::<T>(0)?.map(|x| if x < zero { zero } else { x }))
    }
    match call.dtype(0)? {
        dtype if !dtype.is_float() => with_int!(dtype, T => relu_typed::<T>(call)),
        _ if call.is_double() => relu_typed::<f64>(call),
        _ => relu_typed::<f32>(call),
    }
}
