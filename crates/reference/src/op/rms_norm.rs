//! `rms_norm`, evaluated.

use super::{RmsNorm, one, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::simd::dot;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for RmsNorm {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, w) = (rows(inputs, 0)?, rows(inputs, 1)?);
        let (count, eps) = (T::from_f64(x.columns as f64), T::from_f64(f64::from(self.eps)));
        let mut values = reserve(x.rows, x.columns)?;
        for row in x.iter() {
            let factor = T::ONE / (dot(row, row) / count + eps).sqrt();
            values.extend(row.iter().zip(w.values).map(|(&x, &w)| x * factor * w));
        }
        one(x.rows, x.columns, values)
    }
}
