//! `columns`, evaluated: the same columns of each group. Nothing is rounded.

use super::{Columns, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for Columns {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = rows(inputs, 0)?;
        let (first, count) = (self.first as usize, self.count as usize);
        let columns = x.columns / self.group as usize * count;
        let mut values = reserve(x.rows, columns)?;
        for group in x.values.chunks_exact(self.group as usize) {
            values.extend_from_slice(&group[first..first + count]);
        }
        single_output(x.rows, columns, values)
    }
}
