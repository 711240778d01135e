//! `causal_conv`, evaluated: the rows of the state and of `x` one after the other, and a window that moves by one row.

use super::{CausalConv, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for CausalConv {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, state) = (rows(inputs, 0)?, rows(inputs, 2)?);
        let bias = if inputs.len() > 3 { Some(rows(inputs, 3)?.values) } else { None };
        let (columns, taps) = (x.columns, state.rows + 1);
        let weight = inputs[1].as_float()?.values();
        // The rows before `x` stand in the state.
        let seen = [state.values, x.values].concat();
        let mut values = reserve(x.rows, columns)?;
        for row in 0..x.rows {
            let window = &seen[row * columns..(row + taps) * columns];
            values.extend((0..columns).map(|c| {
                let own = window[c..].iter().step_by(columns).zip(&weight[c * taps..(c + 1) * taps]);
                // The sum begins with the bias and goes from the oldest row to the newest.
                own.fold(bias.map_or(T::ZERO, |b| b[c]), |sum, (&z, &w)| sum + w * z)
            }));
        }
        // With fewer rows than the state has, some of these are of the old state.
        let after = seen[x.rows * columns..].to_vec();
        let y = Value::float(vec![x.rows, columns], values)?;
        Ok(vec![y, Value::float(vec![state.rows, columns], after)?])
    }
}
