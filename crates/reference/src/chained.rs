//! Products whose numbers depend on nothing but the row and the weights: not on the rows beside it, on threads, or on
//! whether the weights are held in the number type or converted as they are read.
//!
//! A sum is a chain of multiply-adds over [`DEPTH`] columns, and these partial sums are added in order. Rows of activations
//! lie side by side in vectors, and each weight, converted once, meets all of them.
//!
//! The error of a sum grows with the length of a chain and with the number of chains, not with their product.

use crate::array::WeightMatrix;
use crate::lanes::dispatch;
use crate::real::Real;
use crate::value::zeros;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::marker::PhantomData;
use tapml_graph::Result;

/// Columns of a chain.
const DEPTH: usize = 256;
/// Outputs whose sums are in registers at once, for each vector of rows.
const OUTPUTS: usize = 6;
/// Outputs of one task, a multiple of [`OUTPUTS`]: their weights over one chain stay in the second cache.
const WIDTH: usize = 48;
/// Columns that are put side by side at a time.
const LINE: usize = 8;
/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 15;

/// `y[i, o] = Σ_k x[i, k]·w[o, k]` for `x: [n, k]`, `w: [outputs, k]`; no size is 0.
///
/// # Errors
/// If memory does not suffice.
pub(crate) fn times<T: Real>(
    x: &[T],
    w: WeightMatrix<'_, T>,
    n: usize,
    k: usize,
    outputs: usize,
) -> Result<Vec<T>> {
    // The sizes alone decide it, and it changes the order of no sum.
    let alone = n.saturating_mul(k).saturating_mul(outputs) < PARALLEL_FROM;
    let x = SideBySide::new(x, n, k, alone)?;
    let mut blocks = zeros(n, outputs)?;
    // A task begins at its first output; the last one may have fewer.
    let task = |scratch: &mut TaskScratch<T>, (i, y): (usize, &mut [T])| {
        let w = WeightMatrix { first: w.first + i * WIDTH * k, ..w };
        dispatch(Task { x: &x, w, y, scratch });
    };
    if alone {
        let mut scratch = TaskScratch::new();
        blocks.chunks_mut(n * WIDTH).enumerate().for_each(|block| task(&mut scratch, block));
    } else {
        blocks.par_chunks_mut(n * WIDTH).enumerate().for_each_init(TaskScratch::new, task);
    }
    // One row, or one task: the blocks are the result already.
    if n == 1 || outputs <= WIDTH {
        return Ok(blocks);
    }
    let mut joined = zeros(n, outputs)?;
    let gather = |(i, row): (usize, &mut [T])| {
        for (to, block) in row.chunks_mut(WIDTH).zip(blocks.chunks(n * WIDTH)) {
            to.copy_from_slice(&block[i * to.len()..(i + 1) * to.len()]);
        }
    };
    if alone {
        joined.chunks_mut(outputs).enumerate().for_each(gather)
    } else {
        joined.par_chunks_mut(outputs).enumerate().for_each(gather)
    }
    Ok(joined)
}

/// Vectors of rows whose sums are in registers at once: with [`OUTPUTS`] they fill 24 of 32, or 12 of 16.
const fn vectors<T: Real, S: Simd>() -> usize {
    if size_of::<T::Vector<S>>() == 64 { 4 } else { 2 }
}

/// Rows of a vector, and of a block of vectors.
struct VectorSizes<T>(PhantomData<T>);

impl<T: Real> WithSimd for VectorSizes<T> {
    type Output = (usize, usize);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (usize, usize) {
        let lanes = size_of::<T::Vector<S>>() / size_of::<T>();
        (lanes, lanes * vectors::<T, S>())
    }
}

/// Activations, chain by chain; within a chain in blocks of rows; within a block column by column, the rows side by side.
struct SideBySide<T> {
    /// `[rows, k]` in that order.
    values: Vec<T>,
    n: usize,
    /// `n` rounded up to whole vectors; rows beyond are zeros.
    rows: usize,
    /// Columns.
    k: usize,
}

impl<T: Real> SideBySide<T> {
    /// Copies `x: [n, k]` into this order; `alone` keeps to one thread.
    fn new(x: &[T], n: usize, k: usize, alone: bool) -> Result<SideBySide<T>> {
        let (lanes, most) = dispatch(VectorSizes::<T>(PhantomData));
        let rows = n.next_multiple_of(lanes);
        let mut values = zeros(rows, k)?;
        let chain = |(i, to): (usize, &mut [T])| {
            let (first, depth) = (i * DEPTH, to.len() / rows);
            for (b, block) in to.chunks_mut(most * depth).enumerate() {
                let width = block.len() / depth;
                // A few columns at a time, so that what is written stays in the first cache.
                for (c, columns) in block.chunks_mut(LINE * width).enumerate() {
                    let count = columns.len() / width;
                    for (lane, row) in (b * most..n.min(b * most + width)).enumerate() {
                        let from = &x[row * k + first + c * LINE..][..count];
                        from.iter().enumerate().for_each(|(i, &from)| columns[i * width + lane] = from);
                    }
                }
            }
        };
        if alone {
            values.chunks_mut(rows * DEPTH).enumerate().for_each(chain)
        } else {
            values.par_chunks_mut(rows * DEPTH).enumerate().for_each(chain)
        }
        Ok(SideBySide { values, n, rows, k })
    }
}

/// What a task writes again and again.
struct TaskScratch<T> {
    /// Weights of one chain.
    weights: Vec<T>,
    /// `[outputs, rows]`.
    sums: Vec<T>,
}

impl<T> TaskScratch<T> {
    /// Empty; the first task gives it its sizes.
    fn new() -> TaskScratch<T> {
        TaskScratch { weights: Vec::new(), sums: Vec::new() }
    }
}

/// Some outputs of all rows: `y: [n, outputs]`.
struct Task<'a, T> {
    /// All activations.
    x: &'a SideBySide<T>,
    /// Weights from this task's first output on.
    w: WeightMatrix<'a, T>,
    /// Where the sums go.
    y: &'a mut [T],
    /// Memory that the thread's last task left.
    scratch: &'a mut TaskScratch<T>,
}

impl<T: Real> WithSimd for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Task { x, w, y, scratch: TaskScratch { weights, sums } } = self;
        let &SideBySide { n, rows, k, .. } = x;
        let (outputs, lanes) = (y.len() / n, size_of::<T::Vector<S>>() / size_of::<T>());
        // Sums begin at zero for each task; weights are written before they are read.
        sums.clear();
        sums.resize(outputs.next_multiple_of(OUTPUTS) * rows, T::ZERO);
        weights.resize(WIDTH * DEPTH, T::ZERO);
        let mut first = 0;
        while first < k {
            let depth = DEPTH.min(k - first);
            // What is beyond the last output is computed and dropped.
            let mut of_output: [&[T]; WIDTH] = [&[]; WIDTH];
            for (o, (slot, buffer)) in of_output.iter_mut().zip(weights.chunks_exact_mut(DEPTH)).enumerate() {
                let at = w.first + o.min(outputs - 1) * k + first;
                if o < outputs.next_multiple_of(OUTPUTS) {
                    *slot = w.array.part(at..at + depth, buffer);
                }
            }
            let mut done = 0;
            while done < rows {
                let width = (vectors::<T, S>() * lanes).min(rows - done);
                let block = &x.values[first * rows + done * depth..][..width * depth];
                for (o, sums) in sums.chunks_exact_mut(OUTPUTS * rows).enumerate() {
                    let mut w: [&[T]; OUTPUTS] = [&[]; OUTPUTS];
                    w.copy_from_slice(&of_output[o * OUTPUTS..(o + 1) * OUTPUTS]);
                    let sums = &mut sums[done..];
                    // The number of vectors is a constant in each, so that sums stay in registers.
                    match width / lanes {
                        4 => chains::<T, S, 4>(simd, block, w, sums, rows),
                        3 => chains::<T, S, 3>(simd, block, w, sums, rows),
                        2 => chains::<T, S, 2>(simd, block, w, sums, rows),
                        _ => chains::<T, S, 1>(simd, block, w, sums, rows),
                    }
                }
                done += width;
            }
            first += depth;
        }
        // Sums lie output by output, with the rows side by side: this turns them.
        for (i, row) in y.chunks_exact_mut(outputs).enumerate() {
            row.iter_mut().zip(sums[i..].iter().step_by(rows)).for_each(|(to, &sum)| *to = sum);
        }
    }
}

/// Adds one chain of `V` vectors of rows with each of some outputs; sums of an output begin `stride` apart.
#[inline(always)]
fn chains<T: Real, S: Simd, const V: usize>(
    simd: S,
    x: &[T],
    w: [&[T]; OUTPUTS],
    sums: &mut [T],
    stride: usize,
) {
    let (x, _) = T::split::<S>(x);
    let (x, _) = x.as_chunks::<V>();
    let depth = x.len();
    // Slices of one length, so that the loop needs no check of its bounds.
    let mut of_output = w;
    for (o, slot) in of_output.iter_mut().enumerate() {
        *slot = &w[o][..depth];
    }
    let mut chain = [[T::splat(simd, T::ZERO); V]; OUTPUTS];
    for i in 0..depth {
        for o in 0..OUTPUTS {
            let weight = T::splat(simd, of_output[o][i]);
            for v in 0..V {
                chain[o][v] = T::mul_add(simd, x[i][v], weight, chain[o][v]);
            }
        }
    }
    for o in 0..OUTPUTS {
        let (sums, _) = T::split_mut::<S>(&mut sums[o * stride..]);
        for v in 0..V {
            sums[v] = T::plus(simd, sums[v], chain[o][v]);
        }
    }
}
