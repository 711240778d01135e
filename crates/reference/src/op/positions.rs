//! `positions`, evaluated from the symbols, or from positions that are given.

use super::Positions;
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Error, Result, Symbol, Symbols};

impl Evaluate for Positions {
    const MOVES_ONLY: bool = true;

    /// # Errors
    /// If none are given and `n` or `p` is not bound, or if a position does not fit in 32 bits.
    fn eval<T: Real>(&self, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        if let Some(given) = inputs.first() {
            let large = || Error::invalid("a given position is no 32-bit number with the offset");
            let moved = given.as_ids()?.iter().map(|at| at.checked_add(self.offset).ok_or_else(large));
            return Ok(vec![Value::ids(moved.collect::<Result<_>>()?)]);
        }
        let bound =
            |s: Symbol| symbols.get(s).ok_or_else(|| Error::invalid(format!("symbol `{s}` is not bound")));
        // Saturates, so that a wrong binding is an error below and no panic.
        let first = bound(Symbol::P)?.saturating_add(u64::from(self.offset));
        let position = |i: u64| {
            let position = u32::try_from(first.saturating_add(i));
            position.map_err(|_| Error::invalid(format!("position {first} + {i} is no 32-bit number")))
        };
        let values: Vec<u32> = (0..bound(Symbol::N)?).map(position).collect::<Result<_>>()?;
        Ok(vec![Value::ids(values)])
    }
}
