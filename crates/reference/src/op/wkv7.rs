//! `wkv7`, evaluated row by row on a state `[head_dim, head_dim]` of each head.

use super::recurrence::{RecurrenceSizes, by_heads};
use super::{Wkv7, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Wkv7 {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let [r, w, k] = [rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?];
        let [v, a, b] = [rows(inputs, 3)?, rows(inputs, 4)?, rows(inputs, 5)?];
        let state = rows(inputs, 6)?;
        let d = self.head_dim as usize;
        // The decay is `exp(−e^(−1/2) · sigmoid(w))`, so that it lies above `exp(−e^(−1/2))`.
        let slowest = T::from_f64(-(-0.5f64).exp());
        let sizes = RecurrenceSizes { rows: r.rows, heads: r.columns / d, columns: d };
        by_heads(&sizes, &state, |head, row, s, y| {
            let [r, w, k, v, a, b] = [&r, &w, &k, &v, &a, &b].map(|rows| rows.part(row, head * d, d));
            // `y` holds what the removal key finds in the state until it is known for every column.
            for (s, &a) in s.chunks_exact(d).zip(a) {
                y.iter_mut().zip(s).for_each(|(found, &s)| *found += a * s);
            }
            for (i, s) in s.chunks_exact_mut(d).enumerate() {
                let decay = (slowest / (T::ONE + (-w[i]).exp())).exp();
                for ((s, &found), &v) in s.iter_mut().zip(&*y).zip(v) {
                    *s = decay * *s + b[i] * found + k[i] * v;
                }
            }
            y.fill(T::ZERO);
            for (s, &r) in s.chunks_exact(d).zip(r) {
                y.iter_mut().zip(s).for_each(|(y, &s)| *y += r * s);
            }
        })
    }
}
