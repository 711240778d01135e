//! `wkv_bonus`, evaluated: one sum for each head, times its values.

use super::{WkvBonus, rows, single_output};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::{Value, reserve};
use tapml_graph::{Result, Symbols};

impl Evaluate for WkvBonus {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let [r, k, v, u] = [rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?, rows(inputs, 3)?];
        let d = self.head_dim as usize;
        let mut values = reserve(r.rows, r.columns)?;
        for row in 0..r.rows {
            for first in (0..r.columns).step_by(d) {
                let [r, k, v] = [&r, &k, &v].map(|rows| rows.part(row, first, d));
                let products = r.iter().zip(u.part(0, first, d)).zip(k).map(|((&r, &u), &k)| r * u * k);
                // The sum serves all columns of the head.
                let sum = products.fold(T::ZERO, |sum, product| sum + product);
                values.extend(v.iter().map(|&v| sum * v));
            }
        }
        single_output(r.rows, r.columns, values)
    }
}
