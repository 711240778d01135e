//! `argmax`, evaluated.
//!
//! Indices depend on the order of the numbers alone, so that every precision that tells them apart gives the same ones.

use super::{Argmax, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use std::cmp::Ordering;
use tapml_graph::{Error, Result, Symbol, Symbols};

impl Evaluate for Argmax {
    const MOVES_ONLY: bool = true;

    /// # Errors
    /// If `n` is not bound, or there are more rows of logits than new tokens.
    fn eval<T: Real>(&self, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (found, x) = (inputs[0].as_ids()?, rows(inputs, 1)?);
        let unbound = || Error::invalid("symbol `n` is not bound");
        let new = symbols.get(Symbol::N).ok_or_else(unbound)?;
        let before = usize::try_from(new).ok().and_then(|new| new.checked_sub(x.rows));
        let before =
            before.ok_or_else(|| Error::invalid(format!("{} rows of `x`, {new} new ones", x.rows)))?;
        let indices: Vec<Option<u32>> = x.iter().map(index).collect();
        let mut all = found.to_vec();
        // New rows without logits come first: the rows of `x` are the last of the new ones.
        all.extend(std::iter::repeat_n(u32::MAX, before));
        all.extend(indices.iter().map(|index| index.unwrap_or(u32::MAX)));
        // Tokens are looked up in a table, so that a row without an index gives one that exists.
        let next = indices.into_iter().map(|index| index.unwrap_or(0)).collect();
        Ok(vec![Value::ids(all), Value::ids(next)])
    }
}

/// The index of the greatest element, the first of equal ones; `None` if it is not finite, or an element is NaN.
fn index<T: Real>(row: &[T]) -> Option<u32> {
    let mut best = 0;
    for (at, value) in row.iter().enumerate() {
        match value.partial_cmp(&row[best]) {
            Some(Ordering::Greater) => best = at,
            Some(_) => {}
            // A NaN has no order, with itself neither.
            None => return None,
        }
    }
    let finite = row.get(best).is_some_and(|value| value.to_f64().is_finite());
    finite.then_some(best as u32)
}
