//! How far disturbed results lie from exact ones.

use crate::value::{Array, Value};
use tapml_graph::Result;

/// The outputs; indices are exact as numbers.
///
/// # Errors
/// If an index tensor does not fit its shape, which is a bug.
pub(crate) fn arrays(values: Vec<Value<f64>>) -> Result<Vec<Array<f64>>> {
    let array = |value| match value {
        Value::Float(array) => Ok(array),
        Value::Uint(ids) => {
            Array::new(ids.shape().to_vec(), ids.values().iter().map(|&id| f64::from(id)).collect())
        }
    };
    values.into_iter().map(array).collect()
}

/// Widens `deviation` to the distance between a disturbed result and the exact one.
pub(crate) fn widen(deviation: &mut [f64], exact: &[f64], moved: &[f64]) {
    for ((deviation, &exact), &moved) in deviation.iter_mut().zip(exact).zip(moved) {
        let distance =
            if exact.is_finite() && !moved.is_finite() { f64::INFINITY } else { (moved - exact).abs() };
        // NaN, where the exact result is not finite, leaves the deviation as it is.
        *deviation = deviation.max(distance);
    }
}
