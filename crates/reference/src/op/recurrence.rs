//! The loop that recurrences share: heads are independent of each other, the rows of one head follow one another.

use super::{InputRows, PARALLEL_FROM};
use crate::real::Real;
use crate::split::is_split;
use crate::value::{Value, reserve, zeros};
use rayon::prelude::*;
use tapml_graph::Result;

/// Sizes of a recurrence.
pub(super) struct RecurrenceSizes {
    /// Rows of the inputs.
    pub rows: usize,
    /// Heads.
    pub heads: usize,
    /// Output elements of a head.
    pub columns: usize,
}

/// Outputs `y: [rows, heads·columns]` and the state after the rows. `step(head, row, s, y)` advances the state `s` of
/// one head by one row and adds to its output `y`, zeros at first.
pub(super) fn by_heads<T: Real>(
    sizes: &RecurrenceSizes,
    state: &InputRows<'_, T>,
    step: impl Fn(usize, usize, &mut [T], &mut [T]) + Send + Sync,
) -> Result<Vec<Value<T>>> {
    let RecurrenceSizes { rows, heads, columns } = *sizes;
    let mut after = reserve(state.rows, state.columns)?;
    after.extend_from_slice(state.values);
    // One block of rows per head until all are done.
    let mut blocks = zeros(heads, rows * columns)?;
    // A head's part of the state is one block, so that heads can be advanced by several threads.
    let size = after.len() / heads.max(1);
    let head = |(head, (s, y)): (usize, (&mut [T], &mut [T]))| {
        for (row, y) in y.chunks_exact_mut(columns).enumerate() {
            step(head, row, s, y);
        }
    };
    if is_split(rows.saturating_mul(state.values.len()), PARALLEL_FROM) {
        let blocks = blocks.par_chunks_mut((rows * columns).max(1));
        after.par_chunks_mut(size).zip(blocks).enumerate().for_each(head)
    } else {
        after.chunks_mut(size).zip(blocks.chunks_mut((rows * columns).max(1))).enumerate().for_each(head)
    }
    let mut y = zeros(rows, heads * columns)?;
    // Heads lie side by side in the result, and one after the other in `blocks`.
    for (head, block) in blocks.chunks((rows * columns).max(1)).enumerate() {
        for (from, to) in block.chunks(columns).zip(y.chunks_mut(heads * columns)) {
            to[head * columns..(head + 1) * columns].copy_from_slice(from);
        }
    }
    let y = Value::float(vec![rows, heads * columns], y)?;
    Ok(vec![y, Value::float(vec![state.rows, state.columns], after)?])
}
