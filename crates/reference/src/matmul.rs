//! Products of rows with a transposed matrix, and the vector loops under them. Work is split into blocks that depend on
//! the sizes alone, so results do not depend on the number of threads.

use crate::real::Real;
use crate::value::zeros;
use rayon::prelude::*;
use tapml_graph::Result;

/// Rows from which a packed GEMM is faster than dot products.
const GEMM_FROM: usize = 16;
/// Rows from which the rows are split between threads instead of the outputs.
const SPLIT_ROWS_FROM: usize = 128;
/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 15;

/// Runs `f` compiled for the widest vectors that this processor has. `f` must be inlined into.
#[inline(always)]
pub(crate) fn dispatch<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// `Σ_i a[i]·b[i]`.
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    dispatch(
        #[inline(always)]
        || T::dots(a, [b])[0],
    )
}

/// Dot products of `row` with each of `rows`. Each is summed in `L` lanes that are then added as a balanced tree, so the
/// result for a row does not depend on which others are computed with it.
#[inline(always)]
pub(crate) fn dots<T: Real, const L: usize, const C: usize>(row: &[T], rows: [&[T]; C]) -> [T; C] {
    let (chunks, tail) = row.as_chunks::<L>();
    let others =
        rows.map(|other| (&other.as_chunks::<L>().0[..chunks.len()], &other[chunks.len() * L..row.len()]));
    let mut sums = [[T::ZERO; L]; C];
    for (i, a) in chunks.iter().enumerate() {
        for (sum, (other, _)) in sums.iter_mut().zip(&others) {
            for ((sum, &a), &b) in sum.iter_mut().zip(a).zip(&other[i]) {
                *sum += a * b;
            }
        }
    }
    for (sum, (_, other)) in sums.iter_mut().zip(&others) {
        for ((sum, &a), &b) in sum.iter_mut().zip(tail).zip(*other) {
            *sum += a * b;
        }
    }
    sums.map(|mut lanes| {
        let mut width = L;
        while width > 1 {
            width /= 2;
            let (low, high) = lanes.split_at_mut(width);
            low.iter_mut().zip(high).for_each(|(a, &mut b)| *a += b);
        }
        lanes[0]
    })
}

/// `y[i, o] = Σ_k x[i, k]·w[o, k]` for `x: [n, k]`, `w: [outputs, k]`.
pub(crate) fn times_transposed<T: Real>(
    x: &[T],
    w: &[T],
    n: usize,
    k: usize,
    outputs: usize,
) -> Result<Vec<T>> {
    let mut y = zeros(n, outputs)?;
    if y.is_empty() || k == 0 {
        return Ok(y);
    }
    if n >= SPLIT_ROWS_FROM {
        let rows = 64;
        y.par_chunks_mut(rows * outputs)
            .zip(x.par_chunks(rows * k))
            .for_each(|(y, x)| T::gemm(Gemm { a: x, b: w, c: y, k }));
        return Ok(y);
    }
    let product = |(y, w): (&mut [T], &[T])| match n < GEMM_FROM {
        true => dispatch(
            #[inline(always)]
            || few_rows(x, w, y, k),
        ),
        false => T::gemm(Gemm { a: x, b: w, c: y, k }),
    };
    // Each block of outputs is an n × width matrix of its own until all are done.
    let width = block_width(n, k, outputs);
    match n.saturating_mul(k).saturating_mul(outputs) < PARALLEL_FROM {
        true => y.chunks_mut(n * width).zip(w.chunks(width * k)).for_each(product),
        false => y.par_chunks_mut(n * width).zip(w.par_chunks(width * k)).for_each(product),
    }
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

/// Outputs that one task computes.
fn block_width(n: usize, k: usize, outputs: usize) -> usize {
    match n < GEMM_FROM {
        true => (16384 / k).clamp(8, 1024),
        false => outputs.div_ceil(8).next_multiple_of(16).clamp(32, 512),
    }
}

/// `y[i, o] = Σ_k x[i, k]·w[o, k]`, streaming `w` once.
#[inline(always)]
fn few_rows<T: Real>(x: &[T], w: &[T], y: &mut [T], k: usize) {
    let outputs = w.len() / k;
    for (o, w) in w.chunks_exact(k).enumerate() {
        let mut set = |i: usize, value| y[i * outputs + o] = value;
        let mut rows = x.chunks_exact(4 * k);
        let mut i = 0;
        for four in &mut rows {
            let part = |r: usize| &four[r * k..(r + 1) * k];
            for value in T::dots(w, [part(0), part(1), part(2), part(3)]) {
                set(i, value);
                i += 1;
            }
        }
        for row in rows.remainder().chunks_exact(k) {
            set(i, T::dots(w, [row])[0]);
            i += 1;
        }
    }
}

/// `c[i, j] = Σ_k a[i, k]·b[j, k]` on this thread; the count of rows follows from the lengths.
pub struct Gemm<'a, T> {
    /// `[m, k]`.
    pub a: &'a [T],
    /// `[n, k]`.
    pub b: &'a [T],
    /// `[m, n]`, overwritten.
    pub c: &'a mut [T],
    /// Elements of a row of `a` and of `b`; at least 1.
    pub k: usize,
}

/// The signature of `matrixmultiply`'s functions.
type Backend<T> = unsafe fn(
    usize,
    usize,
    usize,
    T,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    *mut T,
    isize,
    isize,
);

impl<T: Real> Gemm<'_, T> {
    /// Computes it with this function of `matrixmultiply`.
    #[allow(unsafe_code)]
    pub(crate) fn run(self, backend: Backend<T>) {
        let Gemm { a, b, c, k } = self;
        let (m, n) = (a.len() / k, b.len() / k);
        assert_eq!(c.len(), m * n, "the output has one element per pair of rows");
        // SAFETY: `a` holds m·k elements read with strides (k, 1), `b` n·k elements read as its transpose with strides
        // (1, k), and `c` m·n elements written with strides (n, 1); all three are borrowed for the call, `c` exclusively.
        unsafe {
            let stride = k as isize;
            backend(
                m,
                k,
                n,
                T::ONE,
                a.as_ptr(),
                stride,
                1,
                b.as_ptr(),
                1,
                stride,
                T::ZERO,
                c.as_mut_ptr(),
                n as isize,
                1,
            );
        }
    }
}
