//! `last_row`, evaluated: a copy of the last row.

use super::{LastRow, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for LastRow {
    const MOVES_ONLY: bool = true;

    /// # Errors
    /// If there is no row.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = rows(inputs, 0)?;
        if x.rows == 0 {
            return Err(Error::invalid("a matrix without rows has no last row"));
        }
        single_output(1, x.columns, x.values[(x.rows - 1) * x.columns..].to_vec())
    }
}
