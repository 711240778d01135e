//! `exp_sums`, evaluated. Terms are added in f64, so that the sum of a long part is as exact as its terms.

use super::{ExpSums, PARALLEL_FROM, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::split::is_split;
use crate::value::{Value, reserve};
use rayon::prelude::*;
use tapml_graph::{Result, Symbols};

impl Evaluate for ExpSums {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, scales) = (rows(inputs, 0)?, rows(inputs, 1)?);
        let part = self.part.max(1) as usize;
        let parts = x.columns.div_ceil(part);
        let mut found: Vec<(T, T)> = reserve(x.rows, parts)?;
        let each = |index: usize| {
            let (row, first) = (index / parts, index % parts * part);
            sum(x.part(row, first, part.min(x.columns - first)), scales.values[row])
        };
        if is_split(x.values.len().saturating_mul(8), PARALLEL_FROM) {
            (0..x.rows * parts).into_par_iter().map(each).collect_into_vec(&mut found);
        } else {
            found.extend((0..x.rows * parts).map(each));
        }
        let (maxima, sums) = found.into_iter().unzip();
        let shape = vec![x.rows, parts];
        Ok(vec![Value::float(shape.clone(), maxima)?, Value::float(shape, sums)?])
    }
}

/// The greatest element of a part, and the sum relative to it; zeros where there is none.
fn sum<T: Real>(part: &[T], scale: T) -> (T, T) {
    let finite = |value: T| value.to_f64().is_finite();
    if !finite(scale) || scale <= T::ZERO {
        return (T::ZERO, T::ZERO);
    }
    let most = part.iter().fold(T::NEG_INFINITY, |most, &value| most.max(value));
    if !finite(most) || part.iter().any(|value| value.to_f64().is_nan()) {
        return (T::ZERO, T::ZERO);
    }
    let sum: f64 = part.iter().map(|&value| (scale * (value - most)).exp().to_f64()).sum();
    (most, T::from_f64(sum))
}
