//! `take_rows`, evaluated: copies of rows.

use super::{TakeRows, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for TakeRows {
    const MOVES_ONLY: bool = true;

    /// # Errors
    /// On a number beyond the rows.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, numbers) = (rows(inputs, 0)?, inputs[1].as_ids()?);
        let mut values = reserve(numbers.len(), x.columns)?;
        for &number in numbers {
            if number as usize >= x.rows {
                return Err(Error::invalid(format!("row {number} of {}", x.rows)));
            }
            values.extend_from_slice(x.part(number as usize, 0, x.columns));
        }
        single_output(numbers.len(), x.columns, values)
    }
}
