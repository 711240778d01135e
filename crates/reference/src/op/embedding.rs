//! `embedding`, evaluated.

use super::{Embedding, one, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Error, Result, Symbols};

impl Evaluate for Embedding {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (ids, table) = (inputs[0].as_ids()?, rows(inputs, 1)?);
        let mut values = reserve(ids.len(), table.columns)?;
        for (position, &id) in ids.iter().enumerate() {
            let row = id as usize;
            if row >= table.rows {
                let size = table.rows;
                return Err(Error::invalid(format!(
                    "id {id} at position {position} is outside the vocabulary of {size}"
                ))
                .with_hint("use the tokenizer that belongs to the checkpoint"));
            }
            values.extend_from_slice(&table.values[row * table.columns..(row + 1) * table.columns]);
        }
        one(ids.len(), table.columns, values)
    }
}
