//! `token_shift`, evaluated: rows moved by one. Nothing is rounded.

use super::{TokenShift, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for TokenShift {
    const MOVES_ONLY: bool = true;

    /// # Errors
    /// If there is no row.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, before) = (rows(inputs, 0)?, rows(inputs, 1)?);
        let Some(last) = x.rows.checked_sub(1) else {
            return Err(Error::invalid("a matrix without rows has no last row"));
        };
        // The last row is what the next step takes.
        let (kept, after) = x.values.split_at(last * x.columns);
        let y = Value::float(vec![x.rows, x.columns], [before.values, kept].concat())?;
        Ok(vec![y, Value::float(vec![1, x.columns], after.to_vec())?])
    }
}
