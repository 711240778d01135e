//! `linear`, evaluated by [`crate::matmul`], which reads packed weights and weights of any dtype. The bias is added last.

use super::{Linear, rows, single_output};
use crate::array::WeightMatrix;
use crate::eval::Evaluate;
use crate::matmul::times_transposed;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Linear {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, array) = (rows(inputs, 0)?, inputs[1].as_float()?);
        // A vector is a weight of one output.
        let outputs = if array.shape().len() < 2 { 1 } else { array.shape()[0] };
        let mut values =
            times_transposed(x.values, WeightMatrix { array, first: 0 }, x.rows, x.columns, outputs)?;
        if inputs.len() > 2 {
            let bias = rows(inputs, 2)?.values;
            for row in values.chunks_exact_mut(bias.len().max(1)) {
                row.iter_mut().zip(bias).for_each(|(y, &b)| *y += b);
            }
        }
        single_output(x.rows, outputs, values)
    }
}
