//! `paged_attention`, evaluated: the same sums in the same order as those of `attention`, over rows that a table names. So
//! the numbers of a text do not depend on where its pages lie.

use super::attention::{Head, KeyRows};
use super::{PagedAttention, rows, single_output};
use crate::eval::Evaluate;
use crate::lanes::dispatch;
use crate::real::Real;
use crate::value::{Value, zeros};
use rayon::prelude::*;
use tapml_graph::{Error, Result, Symbols};

/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 14;

impl Evaluate for PagedAttention {
    /// # Errors
    /// On a position behind the pages of a text, and on a page behind the cache.
    fn eval<T: Real>(&self, _: &Symbols, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
        let (q, k, v) = (rows(inputs, 0)?, rows(inputs, 1)?, rows(inputs, 2)?);
        let (positions, texts) = (inputs[3].as_ids()?, inputs[4].as_ids()?);
        let (pages, page) = (inputs[5].as_ids()?, self.page as usize);
        let shape = inputs[5].shape();
        let [count, blocks] = *shape else { return Err(Error::bug("`pages` is no matrix")) };
        let sinks = inputs.get(Self::SINKS).map(|_| rows(inputs, Self::SINKS)).transpose()?;
        let op = &self.attention;
        let (heads, d, e) = (op.heads as usize, op.head_dim as usize, op.value_size() as usize);
        // The pages of each row's text up to its position; `None` for a row of no text.
        let of_row = |(&position, &text): (&u32, &u32)| {
            let (position, text) = (position as usize, text as usize);
            if text >= count {
                return Ok(None);
            }
            let list = &pages[text * blocks..(text + 1) * blocks];
            let used = list.get(..=position / page);
            let used = used
                .ok_or_else(|| Error::invalid(format!("position {position} of {blocks} pages of {page}")))?;
            match used.iter().find(|&&number| number as usize >= k.rows / page) {
                Some(number) => Err(Error::invalid(format!("page {number} of {}", k.rows / page))),
                None => Ok(Some((used, position))),
            }
        };
        let lists = positions.iter().zip(texts).map(of_row).collect::<Result<Vec<_>>>()?;
        let mut values = zeros(q.rows, heads * e)?;
        let head = |(index, y): (usize, &mut [T])| {
            let (row, head) = (index / heads, index % heads);
            let Some((list, position)) = lists[row] else { return };
            let keys = KeyRows { k: &k, v: &v, pages: Some((list, page)) };
            let q = &q.values[index * d..(index + 1) * d];
            let sink = sinks.as_ref().map(|sinks| sinks.values[head]);
            dispatch(Head { op, q, keys, count: position + 1, head, position, sink, y });
        };
        let seen: usize = lists.iter().flatten().map(|(_, position)| position + 1).sum();
        if seen.saturating_mul(q.columns) < PARALLEL_FROM {
            values.chunks_exact_mut(e).enumerate().for_each(head);
        } else {
            values.par_chunks_exact_mut(e).enumerate().for_each(head);
        }
        single_output(q.rows, heads * e, values)
    }
}
