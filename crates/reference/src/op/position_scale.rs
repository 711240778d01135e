//! `position_scale`, evaluated: a factor for each row that follows from its position, which is given or `p` more than its index.

use super::{PositionScale, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::op::PositionForm;
use tapml_graph::{Error, Result, Symbol, Symbols};

impl Evaluate for PositionScale {
    /// # Errors
    /// If no positions are given, and `p` is not bound.
    fn eval<T: Real>(&self, symbols: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let x = rows(inputs, 0)?;
        let given = inputs.get(1).map(Value::as_ids).transpose()?;
        let unbound = || Error::invalid("symbol `p` is not bound");
        // With given positions the number of cached rows says nothing.
        let cached = if given.is_some() { 0 } else { symbols.get(Symbol::P).ok_or_else(unbound)? };
        let mut values = reserve(x.rows, x.columns)?;
        for (row, x) in x.iter().enumerate() {
            let position = given.map_or(cached.saturating_add(row as u64), |given| u64::from(given[row]));
            let factor: T = factor(self.form, position);
            values.extend(x.iter().map(|&x| factor * x));
        }
        single_output(x.rows, x.columns, values)
    }
}

/// `f(position)`; the logarithm is taken in `T`.
fn factor<T: Real>(form: PositionForm, position: u64) -> T {
    match form {
        PositionForm::Llama4 { beta, floor, shift } => {
            let steps = position.saturating_add(u64::from(shift)) / u64::from(floor.max(1));
            T::ONE + T::from_f64(f64::from(beta)) * T::from_f64(steps as f64).ln_1p()
        }
        PositionForm::LogN { train } => {
            let train = T::from_f64(f64::from(train).ln());
            // Positions within the length of training keep their queries.
            T::ONE.max(T::from_f64(position as f64).ln_1p() / train)
        }
    }
}
