//! `embedding`, evaluated: a row of the table for each id.
//!
//! Only the rows that are chosen are converted, of packed tables too.

use super::{Embedding, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for Embedding {
    const MOVES_ONLY: bool = true;

    /// # Errors
    /// If an id is outside of the table.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (ids, table) = (inputs[0].as_ids()?, inputs[1].as_float()?);
        let columns = table.row_len();
        // One row at a time is converted here; a table in the number type is read in place.
        let mut buffer = vec![T::ZERO; columns];
        let mut values = reserve(ids.len(), columns)?;
        for (position, &id) in ids.iter().enumerate() {
            let row = id as usize;
            let size = table.shape().first().copied().unwrap_or(0);
            // The ids come from a user, so that this is checked in every run.
            if row >= size {
                return Err(Error::invalid(format!(
                    "id {id} at position {position} is outside the vocabulary of {size}"
                ))
                .with_hint("use the tokenizer that belongs to the checkpoint"));
            }
            values.extend_from_slice(table.part(row * columns..(row + 1) * columns, &mut buffer));
        }
        single_output(ids.len(), columns, values)
    }
}
