//! `rows`, evaluated: a copy of consecutive rows.

use super::{rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::op::Rows;
use tapml_graph::{Result, Symbols};

impl Evaluate for Rows {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = rows(inputs, 0)?;
        let (first, count) = (self.first as usize, self.count as usize);
        single_output(count, x.columns, x.values[first * x.columns..(first + count) * x.columns].to_vec())
    }
}
