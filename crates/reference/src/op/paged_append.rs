//! `paged_append`, evaluated: a copy of the cache with some rows replaced.

use super::{PagedAppend, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for PagedAppend {
    const MOVES_ONLY: bool = true;

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (cache, new, slots) = (rows(inputs, 0)?, rows(inputs, 1)?, inputs[2].as_ids()?);
        let mut values = reserve(cache.rows, cache.columns)?;
        values.extend_from_slice(cache.values);
        for (row, &slot) in slots.iter().enumerate() {
            let start = (slot as usize).saturating_mul(cache.columns);
            // A slot beyond the cache stands for a row that is kept nowhere.
            if let Some(kept) = values.get_mut(start..start.saturating_add(cache.columns)) {
                kept.copy_from_slice(new.part(row, 0, cache.columns));
            }
        }
        single_output(cache.rows, cache.columns, values)
    }
}
