//! Products of rows with a transposed matrix, as dot products: four rows and two outputs at a time share what they load.
//!
//! The sum of one row and one output is always made in the same order, so that a row's result depends neither on the rows
//! beside it nor on threads. A text is the same alone and among others then. Products in `f64`, and those with weights that
//! are converted as they are read, are [chained](crate::chained).

use crate::array::WeightMatrix;
use crate::chained;
use crate::lanes::dispatch;
use crate::real::Real;
use crate::simd::dots;
use crate::split::is_split;
use crate::value::zeros;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use tapml_graph::{DType, Result};

/// Rows from which the rows are split between threads instead of the outputs.
const SPLIT_ROWS_FROM: usize = 128;
/// Rows of one task then: they stay in a core's cache while all weights pass.
const ROWS: usize = 32;
/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 15;

/// `y[i, o] = Σ_k x[i, k]·w[o, k]` for `x: [n, k]`, `w: [outputs, k]`.
///
/// # Errors
/// If memory does not suffice.
pub(crate) fn times_transposed<T: Real>(
    x: &[T],
    w: WeightMatrix<'_, T>,
    n: usize,
    k: usize,
    outputs: usize,
) -> Result<Vec<T>> {
    // Sums of no terms are zeros, and the loops below need rows of at least one element.
    if n == 0 || outputs == 0 || k == 0 {
        return zeros(n, outputs);
    }
    // What is exact must not depend on what was multiplied along with it.
    if T::DTYPE == DType::F64 || w.array.is_narrow() {
        return chained::times(x, w, n, k, outputs);
    }
    let mut y = zeros(n, outputs)?;
    let w = &w.array.values()[w.first..w.first + outputs * k];
    let width = block_width(k);
    if n >= SPLIT_ROWS_FROM {
        y.par_chunks_mut(ROWS * outputs).zip(x.par_chunks(ROWS * k)).for_each(|(y, x)| {
            for (column, w) in w.chunks(width * k).enumerate() {
                dispatch(Product { x, w, y, k, stride: outputs, column: column * width });
            }
        });
        return Ok(y);
    }
    // Each block of outputs is an n × width matrix of its own until all are done.
    let product = |(y, w): (&mut [T], &[T])| dispatch(Product { x, w, y, k, stride: w.len() / k, column: 0 });
    if is_split(n.saturating_mul(k).saturating_mul(outputs), PARALLEL_FROM) {
        y.par_chunks_mut(n * width).zip(w.par_chunks(width * k)).for_each(product)
    } else {
        y.chunks_mut(n * width).zip(w.chunks(width * k)).for_each(product)
    }
    join_blocks(y, n, width, outputs)
}

/// Blocks of `width` outputs, each an `n × width` matrix of its own, as one matrix.
fn join_blocks<T: Real>(y: Vec<T>, n: usize, width: usize, outputs: usize) -> Result<Vec<T>> {
    if n == 1 || width >= outputs {
        return Ok(y);
    }
    let mut joined = zeros(n, outputs)?;
    for (i, block) in y.chunks(n * width).enumerate() {
        let width_here = block.len() / n;
        for (from, to) in block.chunks(width_here).zip(joined.chunks_mut(outputs)) {
            to[i * width..i * width + width_here].copy_from_slice(from);
        }
    }
    Ok(joined)
}

/// Outputs whose weights stay in a core's cache while all rows of a task pass.
fn block_width(k: usize) -> usize {
    (16384 / k).clamp(8, 1024)
}

/// `y[i, column + o] = Σ_k x[i, k]·w[o, k]`, streaming `w` once.
pub(crate) struct Product<'a, T> {
    /// `[n, k]`.
    pub x: &'a [T],
    /// `[outputs, k]`.
    pub w: &'a [T],
    /// `[n, stride]`.
    pub y: &'a mut [T],
    /// Terms of each sum.
    pub k: usize,
    /// Elements of a row of `y`.
    pub stride: usize,
    /// Where the first output goes in a row of `y`.
    pub column: usize,
}

impl<T: Real> WithSimd for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Product { x, w, y, k, stride, column } = self;
        let outputs = w.len() / k;
        let mut o = 0;
        while o + 4 <= outputs {
            let w = four_rows(w, o, k);
            let mut i = 0;
            while i + 4 <= x.len() / k {
                let x = four_rows(x, i, k);
                // Four rows with two outputs each: eight sums in registers.
                for half in [0, 2] {
                    let values = dots(simd, x, [w[half], w[half + 1]]);
                    for (r, values) in values.iter().enumerate() {
                        let at = (i + r) * stride + column + o + half;
                        y[at..at + 2].copy_from_slice(values);
                    }
                }
                i += 4;
            }
            while i < x.len() / k {
                let [values] = dots(simd, [row_at(x, i, k)], w);
                let at = i * stride + column + o;
                y[at..at + 4].copy_from_slice(&values);
                i += 1;
            }
            o += 4;
        }
        for o in o..outputs {
            for (i, x) in x.chunks_exact(k).enumerate() {
                let [[value]] = dots(simd, [x], [row_at(w, o, k)]);
                y[i * stride + column + o] = value;
            }
        }
    }
}

/// Four rows of `k` elements from row `i` on.
#[inline(always)]
fn four_rows<T>(rows: &[T], i: usize, k: usize) -> [&[T]; 4] {
    [row_at(rows, i, k), row_at(rows, i + 1, k), row_at(rows, i + 2, k), row_at(rows, i + 3, k)]
}

/// Row `i` of rows of `k` elements.
#[inline(always)]
fn row_at<T>(rows: &[T], i: usize, k: usize) -> &[T] {
    &rows[i * k..(i + 1) * k]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use tapml_graph::{DType, Tensor};

    #[test]
    fn a_row_has_the_same_bits_alone_and_among_others() {
        let value = |i: usize| ((i * 7919 % 1013) as f32 - 500.0) / 512.0;
        for (n, k, outputs) in [(7, 320, 33), (40, 1030, 130), (150, 97, 1025)] {
            let w = Tensor::from_f32(vec![outputs, k], (0..outputs * k).map(value).collect()).unwrap();
            let w = Value::<f32>::from_tensor(&w).unwrap();
            let x: Vec<f32> = (0..n * k).map(|i| value(3 * i + 1)).collect();
            let product = |x: &[f32]| {
                let array = w.as_float().unwrap();
                times_transposed(x, WeightMatrix { array, first: 0 }, x.len() / k, k, outputs).unwrap()
            };
            let all = product(&x);
            for count in [1, 2, 5, 33, 129] {
                let some: Vec<f32> = x.chunks(count * k).flat_map(product).collect();
                let differ = all.iter().zip(&some).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                assert_eq!(differ, 0, "{n} x {k} x {outputs}, {count} rows at a time");
            }
        }
    }

    /// The numbers of a row are the same whatever is multiplied along with it and however the weights are held, and right.
    #[test]
    fn exact_products_depend_on_nothing_else() {
        let value = |i: usize| ((i * 7919 % 1013) as f32 - 500.0) / 512.0;
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            for (n, k, outputs) in [(1, 320, 7), (9, 40, 1030), (40, 1500, 130), (150, 1025, 97), (3, 1, 1)] {
                let values = (0..outputs * k).map(value).collect();
                let w = Tensor::from_f32_as(dtype, vec![outputs, k], values).unwrap();
                let x: Vec<f64> = (0..n * k).map(|i| f64::from(value(3 * i + 1))).collect();
                let product = |x: &[f64], w: &Value<f64>| {
                    let array = w.as_float().unwrap();
                    times_transposed(x, WeightMatrix { array, first: 0 }, x.len() / k, k, outputs).unwrap()
                };
                let (streamed, whole) = (Value::from_streamed(&w).unwrap(), Value::from_tensor(&w).unwrap());
                assert!(streamed.as_float().unwrap().is_narrow());
                let all = product(&x, &streamed);
                assert_eq!(all, product(&x, &whole), "{dtype}, {n} x {k} x {outputs}");
                assert!(streamed.as_float().unwrap().is_narrow(), "nothing asked for all of them");
                let wide = w.to_f64();
                for (x, y) in x.chunks(k).zip(all.chunks(outputs)) {
                    assert_eq!(product(x, &streamed), y, "{dtype}, {n} x {k} x {outputs}");
                    for (w, y) in wide.chunks(k).zip(y) {
                        let expected: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
                        assert!((y - expected).abs() < 1e-12 * k as f64, "{y} for {expected}");
                    }
                }
                assert_eq!(streamed.as_float().unwrap().values(), whole.as_float().unwrap().values());
            }
        }
    }
}
