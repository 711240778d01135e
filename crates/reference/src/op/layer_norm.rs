//! `layer_norm`, evaluated by two passes: the mean first, then the mean of squared distances from it.
//!
//! The mean of squares less the square of the mean would cancel where the mean is large.

use super::{LayerNorm, optional, rows, run_of, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for LayerNorm {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, weight, bias) = (rows(inputs, 0)?, optional(inputs, 1)?, optional(inputs, 2)?);
        // Without groups a whole row is one run.
        let len = self.group.map_or(x.columns, |group| group as usize);
        let (count, eps) = (T::from_f64(len as f64), T::from_f64(f64::from(self.eps)));
        let offset = T::from_f64(f64::from(self.offset));
        let mut values = reserve(x.rows, x.columns)?;
        for row in x.iter() {
            for (index, run) in row.chunks_exact(len.max(1)).enumerate() {
                let mean = sum(run.iter().copied()) / count;
                let variance = sum(run.iter().map(|&x| (x - mean) * (x - mean))) / count;
                // One division for the whole run.
                let factor = T::ONE / (variance + eps).sqrt();
                let start = values.len();
                values.extend(run.iter().map(|&x| (x - mean) * factor));
                let normed = &mut values[start..];
                if let Some(w) = weight {
                    normed.iter_mut().zip(run_of(w, index, len)).for_each(|(y, &w)| *y = *y * (offset + w));
                }
                if let Some(b) = bias {
                    normed.iter_mut().zip(run_of(b, index, len)).for_each(|(y, &b)| *y += b);
                }
            }
        }
        single_output(x.rows, x.columns, values)
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
