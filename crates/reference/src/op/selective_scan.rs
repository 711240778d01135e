//! `selective_scan`, evaluated row by row: each head advances its state `[state, head_dim]` and reads it out.

use super::recurrence::{RecurrenceSizes, by_heads};
use super::{SelectiveScan, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for SelectiveScan {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (x, dt, a_log) = (rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?);
        let (b, c, skip) = (rows(inputs, 3)?, rows(inputs, 4)?, rows(inputs, 5)?);
        let states = rows(inputs, 6)?;
        let [heads, d, size] = [self.heads, self.head_dim, self.state].map(|n| n as usize);
        // Heads of a group share `b` and `c`.
        let shared = heads / self.groups as usize;
        let sizes = RecurrenceSizes { rows: x.rows, heads, columns: d };
        by_heads(&sizes, &states, |head, row, s, y| {
            let x = x.part(row, head * d, d);
            let (b, c) = (b.part(row, head / shared * size, size), c.part(row, head / shared * size, size));
            let step = dt.part(row, head, 1)[0];
            // `exp(−exp(a_log)·dt)`: between 0 and 1 for steps that are not negative.
            let decay = (-(a_log.values[head].exp()) * step).exp();
            for (i, s) in s.chunks_exact_mut(d).enumerate() {
                for ((s, y), &x) in s.iter_mut().zip(&mut *y).zip(x) {
                    *s = decay * *s + step * b[i] * x;
                    *y += c[i] * *s;
                }
            }
            // The skip connection comes last, past the state.
            y.iter_mut().zip(x).for_each(|(y, &x)| *y += skip.values[head] * x);
        })
    }
}
