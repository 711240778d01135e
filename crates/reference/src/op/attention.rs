//! `attention`, evaluated: for each query row and head a stable softmax over the keys it may see.
//!
//! Scores that are masked are not computed. So a masked key adds nothing to any sum, not even a rounded zero. Rows and heads are
//! independent of each other and run in parallel.

use super::{Attention, InputRows, rows, single_output};
use crate::eval::Evaluate;
use crate::lanes::dispatch;
use crate::real::Real;
use crate::simd::{add_scaled, dots};
use crate::split::is_split;
use crate::value::{Value, zeros};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;
use tapml_graph::{Dim, Error, Result, Symbol, Symbols, TensorType};

/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 14;

impl Evaluate for Attention {
    /// A causal attention compares the numbers of queries and keys as `n` and `n + p`, not as numbers.
    fn symbolic(&self, types: &mut [TensorType], symbols: &Symbols) {
        if !self.causal {
            return;
        }
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

    /// # Errors
    /// If a causal attention has fewer keys than queries.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (q, k, v) = (rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?);
        let sinks = if inputs.len() > 3 { Some(rows(inputs, 3)?.values) } else { None };
        let (heads, d, e) = (self.heads as usize, self.head_dim as usize, self.value_size() as usize);
        let fewer = || Error::invalid("there are fewer keys than queries");
        // Queries are the last of the positions that have keys.
        let cached = if self.causal { k.rows.checked_sub(q.rows).ok_or_else(fewer)? } else { 0 };
        let mut values = zeros(q.rows, heads * e)?;
        let head = |(index, y): (usize, &mut [T])| {
            let (row, head) = (index / heads, index % heads);
            let q = &q.values[index * d..(index + 1) * d];
            let (position, sink) = (cached + row, sinks.map(|s| s[head]));
            let keys = KeyRows { k: &k, v: &v, pages: None };
            dispatch(Head { op: self, q, keys, count: k.rows, head, position, sink, y });
        };
        // A chunk is one head of one row.
        if is_split(q.rows.saturating_mul(k.rows).saturating_mul(q.columns), PARALLEL_FROM) {
            values.par_chunks_exact_mut(e).enumerate().for_each(head)
        } else {
            values.chunks_exact_mut(e).enumerate().for_each(head)
        }
        single_output(q.rows, heads * e, values)
    }
}

/// The keys that a query at `position` sees, of `keys`.
fn visible_keys(op: &Attention, position: usize, keys: usize) -> Range<usize> {
    // A chunk begins at a multiple of its size; keys before it are not seen.
    let chunk = op.chunk.map_or(0, |c| position / c as usize * c as usize);
    if !op.causal {
        return chunk..op.chunk.map_or(keys, |c| keys.min(chunk.saturating_add(c as usize)));
    }
    let end = position + 1;
    // The query's own position counts as one of the window.
    let window = end.saturating_sub(op.window.map_or(end, |w| w as usize));
    window.max(chunk)..end
}

/// Where the keys and values of a text lie.
#[derive(Clone, Copy)]
pub(super) struct KeyRows<'a, T> {
    /// `[rows, kv_heads · head_dim]`.
    pub k: &'a InputRows<'a, T>,
    /// `[rows, kv_heads · value_dim]`.
    pub v: &'a InputRows<'a, T>,
    /// The text's pages and the rows of one; position `j` is row `j` if there are none.
    pub pages: Option<(&'a [u32], usize)>,
}

impl<T> KeyRows<'_, T> {
    /// The row of a position.
    #[inline(always)]
    fn row(&self, position: usize) -> usize {
        match self.pages {
            None => position,
            Some((pages, page)) => pages[position / page] as usize * page + position % page,
        }
    }

    /// The rows of four positions.
    #[inline(always)]
    fn rows(&self, position: usize) -> [usize; 4] {
        [position, position + 1, position + 2, position + 3].map(|position| self.row(position))
    }
}

/// One head of one query row: `y = Σ_j softmax(s)_j · v_j` over the keys it sees.
pub(super) struct Head<'a, T> {
    /// The attributes.
    pub op: &'a Attention,
    /// `[head_dim]`: the query.
    pub q: &'a [T],
    /// Keys and values.
    pub keys: KeyRows<'a, T>,
    /// How many there are.
    pub count: usize,
    /// Index of the head of queries.
    pub head: usize,
    /// Position of the query among the keys.
    pub position: usize,
    /// A score beside the keys that has no value.
    pub sink: Option<T>,
    /// `[value_dim]`: the result, zeros at first.
    pub y: &'a mut [T],
}

impl<T: Real> WithSimd for Head<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Head { op, q, keys, count, head, position, sink, y } = self;
        let seen = visible_keys(op, position, count);
        let kv_head = head / (op.heads / op.kv_heads) as usize;
        // Keys of one head lie side by side in a row.
        let first = kv_head * q.len();
        let mut weights = Vec::with_capacity(seen.len());
        let mut j = seen.start;
        // Four keys at a time share the loads of the query.
        while j + 4 <= seen.end {
            let parts = keys.rows(j).map(|row| keys.k.part(row, first, q.len()));
            let [scores] = dots(simd, [q], parts);
            weights.extend(scores);
            j += 4;
        }
        for j in j..seen.end {
            let [[score]] = dots(simd, [q], [keys.k.part(keys.row(j), first, q.len())]);
            weights.push(score);
        }
        let scale = T::from_f64(f64::from(op.scale));
        weights.iter_mut().for_each(|s| *s = scale * *s);
        if let Some(cap) = op.softcap.map(|c| T::from_f64(f64::from(c))) {
            weights.iter_mut().for_each(|s| *s = cap * (*s / cap).tanh());
        }
        // A bias that falls with the distance: Press et al., "Train Short, Test Long", 2022.
        if let Some(slopes) = &op.alibi {
            let slope = f64::from(slopes[head]);
            for (s, j) in weights.iter_mut().zip(seen.clone()) {
                *s += T::from_f64(slope * (j as f64 - position as f64));
            }
        }
        softmax(&mut weights, sink);
        let (first, len) = (kv_head * y.len(), y.len());
        let (fours, rest) = weights.as_chunks::<4>();
        for (i, &weights) in fours.iter().enumerate() {
            // Four values at a time share the loads and stores of the result.
            let parts = keys.rows(seen.start + 4 * i).map(|row| keys.v.part(row, first, len));
            add_scaled(simd, y, weights, parts);
        }
        for (i, &weight) in rest.iter().enumerate() {
            add_scaled(simd, y, [weight], [keys.v.part(keys.row(j + i), first, len)]);
        }
    }
}

/// `exp(s_j − m) / (Σ exp(s − m) + exp(sink − m))` in place, with the largest score, or the sink, as `m`. The sum is one
/// of sums of 32 terms, so that no sum has many roundings even over a long cache.
fn softmax<T: Real>(scores: &mut [T], sink: Option<T>) {
    let largest = scores.iter().fold(sink.unwrap_or(T::NEG_INFINITY), |max, &s| max.max(s));
    // A sink takes its share of the weights and adds no value.
    let mut total = sink.map_or(T::ZERO, |sink| (sink - largest).exp());
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
