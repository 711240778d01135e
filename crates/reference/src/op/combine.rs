//! `combine`, evaluated: a weighted sum for each column, in the order of the slots.

use super::{Combine, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for Combine {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (y, k) = (rows(inputs, 0)?, self.k as usize);
        // Without weights each block counts once.
        let plain = vec![T::ONE; if inputs.len() > 1 { 0 } else { y.rows * k }];
        let weights = if inputs.len() > 1 { rows(inputs, 1)?.values } else { &plain };
        let width = y.columns / k;
        let mut values = reserve(y.rows, width)?;
        for (row, weights) in y.iter().zip(weights.chunks_exact(k)) {
            let sum = |j: usize| {
                let terms = weights.iter().enumerate().map(|(slot, &weight)| weight * row[slot * width + j]);
                terms.fold(T::ZERO, |sum, term| sum + term)
            };
            values.extend((0..width).map(sum));
        }
        single_output(y.rows, width, values)
    }
}
