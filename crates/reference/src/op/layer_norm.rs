//! `layer_norm`, evaluated.

use super::{LayerNorm, one, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for LayerNorm {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, w) = (rows(inputs, 0)?, rows(inputs, 1)?);
        let bias = if inputs.len() > 2 { Some(rows(inputs, 2)?.values) } else { None };
        let (count, eps) = (T::from_f64(x.columns as f64), T::from_f64(f64::from(self.eps)));
        let mut values = reserve(x.rows, x.columns)?;
        for row in x.iter() {
            let mean = sum(row.iter().copied()) / count;
            let variance = sum(row.iter().map(|&x| (x - mean) * (x - mean))) / count;
            let factor = T::ONE / (variance + eps).sqrt();
            let scaled = row.iter().zip(w.values).map(|(&x, &w)| (x - mean) * factor * w);
            match bias {
                Some(bias) => values.extend(scaled.zip(bias).map(|(y, &b)| y + b)),
                None => values.extend(scaled),
            }
        }
        one(x.rows, x.columns, values)
    }
}

/// The sum, in 16 interleaved chains, so that rounding grows with the length of one chain only.
fn sum<T: Real>(values: impl Iterator<Item = T>) -> T {
    let mut sums = [T::ZERO; 16];
    for (i, value) in values.enumerate() {
        sums[i % 16] += value;
    }
    sums.into_iter().fold(T::ZERO, |total, part| total + part)
}
