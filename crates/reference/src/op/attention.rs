//! `attention`, evaluated: for each query row and head a stable softmax over the keys it may see.

use super::{Attention, Rows, one, rows};
use crate::eval::Evaluate;
use crate::real::Real;
use crate::simd::{add_scaled, dispatch, dots};
use crate::value::{Value, zeros};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;
use tapml_graph::{Dim, Error, Result, Symbol, Symbols, TensorType};

/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 14;

impl Evaluate for Attention {
    fn symbolic(&self, types: &mut [TensorType], symbols: &Symbols) {
        let n = Dim::symbol(Symbol::N);
        let seen = n.checked_add(&Dim::symbol(Symbol::P)).unwrap_or_default();
        for (ty, dim) in types.iter_mut().zip([n, seen.clone(), seen]) {
            if let Some(size) = ty.shape.first_mut()
                && size.as_const() == dim.eval(symbols).ok()
            {
                *size = dim;
            }
        }
    }

    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (q, k, v) = (rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?);
        let (heads, d) = (self.heads as usize, self.head_dim as usize);
        let cached =
            k.rows.checked_sub(q.rows).ok_or_else(|| Error::invalid("there are fewer keys than queries"))?;
        let mut values = zeros(q.rows, q.columns)?;
        let head = |(index, y): (usize, &mut [T])| {
            let (row, head) = (index / heads, index % heads);
            let end = cached + row + 1;
            let seen = end.saturating_sub(self.window.map_or(end, |w| w as usize))..end;
            let q = &q.values[index * d..(index + 1) * d];
            dispatch(Head { op: self, q, k: &k, v: &v, head, seen, y });
        };
        match q.rows.saturating_mul(k.rows).saturating_mul(q.columns) < PARALLEL_FROM {
            true => values.chunks_exact_mut(d).enumerate().for_each(head),
            false => values.par_chunks_exact_mut(d).enumerate().for_each(head),
        }
        one(q.rows, q.columns, values)
    }
}

/// One head of one query row: `y = Σ_j softmax(s)_j · v_j` over the keys `seen`.
struct Head<'a, T> {
    op: &'a Attention,
    q: &'a [T],
    k: &'a Rows<'a, T>,
    v: &'a Rows<'a, T>,
    head: usize,
    seen: Range<usize>,
    y: &'a mut [T],
}

impl<T: Real> WithSimd for Head<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Head { op, q, k, v, head, seen, y } = self;
        let first = head / (op.heads / op.kv_heads) as usize * q.len();
        let mut weights = Vec::with_capacity(seen.len());
        let mut j = seen.start;
        while j + 4 <= seen.end {
            let [scores] = dots(simd, [q], k.parts(j, first, q.len()));
            weights.extend(scores);
            j += 4;
        }
        for j in j..seen.end {
            let [[score]] = dots(simd, [q], [k.part(j, first, q.len())]);
            weights.push(score);
        }
        let scale = T::from_f64(f64::from(op.scale));
        weights.iter_mut().for_each(|s| *s = scale * *s);
        if let Some(cap) = op.softcap.map(|c| T::from_f64(f64::from(c))) {
            weights.iter_mut().for_each(|s| *s = cap * (*s / cap).tanh());
        }
        softmax(&mut weights);
        let (fours, rest) = weights.as_chunks::<4>();
        for (i, &weights) in fours.iter().enumerate() {
            add_scaled(simd, y, weights, v.parts(seen.start + 4 * i, first, q.len()));
        }
        for (i, &weight) in rest.iter().enumerate() {
            add_scaled(simd, y, [weight], [v.part(j + i, first, q.len())]);
        }
    }
}

/// `exp(s_j − max s) / Σ exp(s − max s)` in place. The sum is one of sums of 32 terms, so that no sum has many
/// roundings even over a long cache.
fn softmax<T: Real>(scores: &mut [T]) {
    let largest = scores.iter().fold(T::NEG_INFINITY, |max, &s| max.max(s));
    let mut total = T::ZERO;
    for block in scores.chunks_mut(32) {
        let mut sum = T::ZERO;
        for s in block {
            *s = (*s - largest).exp();
            sum += *s;
        }
        total += sum;
    }
    scores.iter_mut().for_each(|s| *s = *s / total);
}
