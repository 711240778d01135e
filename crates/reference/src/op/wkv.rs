//! `wkv`, evaluated row by row on a state `[head_dim, head_dim]` of each head.

use super::recurrence::{RecurrenceSizes, by_heads};
use super::{Wkv, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::value::Value;
use tapml_graph::{Result, Symbols};

impl Evaluate for Wkv {
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let [r, k, v] = [rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?];
        let (w, u, state) = (rows(inputs, 3)?, rows(inputs, 4)?, rows(inputs, 5)?);
        let d = self.head_dim as usize;
        // RWKV-5 has one decay for all tokens, RWKV-6 one for each.
        let per_token = inputs[3].shape().len() == 2;
        let sizes = RecurrenceSizes { rows: r.rows, heads: r.columns / d, columns: d };
        by_heads(&sizes, &state, |head, row, s, y| {
            let [r, k, v] = [&r, &k, &v].map(|rows| rows.part(row, head * d, d));
            let w = w.part(if per_token { row } else { 0 }, head * d, d);
            let u = u.part(0, head * d, d);
            for (i, s) in s.chunks_exact_mut(d).enumerate() {
                // `exp(−exp(w))` lies between 0 and 1 for every `w`.
                let decay = (-w[i].exp()).exp();
                for ((s, y), &v) in s.iter_mut().zip(&mut *y).zip(v) {
                    let new = k[i] * v;
                    *y += r[i] * (*s + u[i] * new);
                    *s = decay * *s + new;
                }
            }
        })
    }
}
