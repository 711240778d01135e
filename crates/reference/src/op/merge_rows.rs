//! `merge_rows`, evaluated: each row is a copy from one of two matrices.

use super::{MergeRows, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for MergeRows {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, source, slots) = (rows(inputs, 0)?, rows(inputs, 1)?, inputs[2].as_ids()?);
        let mut values = reserve(x.rows, x.columns)?;
        for (row, &slot) in slots.iter().enumerate() {
            // A slot beyond the source keeps the row of `x`.
            let (from, row) =
                if (slot as usize) < source.rows { (&source, slot as usize) } else { (&x, row) };
            values.extend_from_slice(from.part(row, 0, x.columns));
        }
        single_output(x.rows, x.columns, values)
    }
}
