//! `linear`, evaluated.

use super::{Linear, one, rows};
use crate::eval::Evaluate;
use crate::matmul::times_transposed;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Linear {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, w) = (rows(inputs, 0)?, rows(inputs, 1)?);
        let mut values = times_transposed(x.values, w.values, x.rows, x.columns, w.rows)?;
        if inputs.len() > 2 {
            let bias = rows(inputs, 2)?.values;
            for row in values.chunks_exact_mut(bias.len().max(1)) {
                row.iter_mut().zip(bias).for_each(|(y, &b)| *y += b);
            }
        }
        one(x.rows, w.rows, values)
    }
}
