//! `rms_norm`, evaluated: the mean square by a dot product, then one factor for each run of columns.

use super::{RmsNorm, optional, rows, run_of, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::simd::dot;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for RmsNorm {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, weight) = (rows(inputs, 0)?, optional(inputs, 1)?);
        let len = self.group.map_or(x.columns, |group| group as usize);
        let (count, eps) = (T::from_f64(len as f64), T::from_f64(f64::from(self.eps)));
        let offset = T::from_f64(f64::from(self.offset));
        let mut values = reserve(x.rows, x.columns)?;
        for row in x.iter() {
            for (index, run) in row.chunks_exact(len.max(1)).enumerate() {
                let factor = T::ONE / (dot(run, run) / count + eps).sqrt();
                let normed = run.iter().map(|&x| x * factor);
                match weight {
                    Some(w) => {
                        values.extend(normed.zip(run_of(w, index, len)).map(|(y, &w)| y * (offset + w)))
                    }
                    None => values.extend(normed),
                }
            }
        }
        single_output(x.rows, x.columns, values)
    }
}
