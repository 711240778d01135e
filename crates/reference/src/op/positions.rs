//! `positions`, evaluated from the symbols alone.

use super::Positions;
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Error, Result, Symbol, Symbols};

impl Evaluate for Positions {
    const MOVES_ONLY: bool = true;

    /// # Errors
    /// If `n` or `p` is not bound, or a position does not fit in 32 bits.
    fn eval<T: Real>(&self, symbols: &Symbols, _: &[Value<T>]) -> Result<Vec<Value<T>>> {
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
