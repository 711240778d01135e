//! `lerp`, evaluated as `a + (b − a)·t`, in this order of operations.

use super::{Lerp, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for Lerp {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (a, b, t) = (rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?);
        let mut values = reserve(a.rows, a.columns)?;
        // A vector is taken again for every row; a matrix is as long as the others.
        let factors = t.values.iter().cycle();
        values.extend(a.values.iter().zip(b.values).zip(factors).map(|((&a, &b), &t)| a + (b - a) * t));
        single_output(a.rows, a.columns, values)
    }
}
