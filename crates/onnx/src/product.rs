//! Products of matrices by the packed GEMM of `matrixmultiply`, in parallel. How the work is split follows from the sizes
//! alone, so results do not depend on the number of threads.

use crate::real::Real;
use rayon::prelude::*;

/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 18;

/// A matrix within a slice: the element of row `i` and column `j` stands at `i·rows + j·columns`.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Elements between rows.
    pub rows: usize,
    /// Elements between columns.
    pub columns: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix of rows of this many elements.
    pub fn new(data: &'a [T], width: usize) -> Matrix<'a, T> {
        Matrix { data, rows: width, columns: 1 }
    }

    /// Its transpose.
    pub fn transpose(self) -> Matrix<'a, T> {
        Matrix { rows: self.columns, columns: self.rows, ..self }
    }

    /// Whether `m` rows of `n` elements lie within the data.
    fn holds(&self, m: usize, n: usize) -> bool {
        m == 0 || n == 0 || (m - 1) * self.rows + (n - 1) * self.columns < self.data.len()
    }
}

/// `c[i, j] = Σ_k a[i, k]·b[k, j]` on this thread, for `c` of rows of `n` elements.
pub struct Gemm<'a, T> {
    /// `[m, k]`.
    pub a: Matrix<'a, T>,
    /// `[k, n]`.
    pub b: Matrix<'a, T>,
    /// `[m, n]`.
    pub c: &'a mut [T],
    /// Terms of each sum.
    pub k: usize,
    /// Columns.
    pub n: usize,
}

/// The signature of `matrixmultiply`'s functions.
type GemmFunction<T> = unsafe fn(
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
    pub(crate) fn run(self, backend: GemmFunction<T>) {
        let Gemm { a, b, c, k, n } = self;
        let m = c.len() / n.max(1);
        assert_eq!(c.len(), m * n, "the output has whole rows");
        assert!(a.holds(m, k) && b.holds(k, n), "the matrices have the elements that the product reads");
        let [ar, ac, br, bc] = [a.rows, a.columns, b.rows, b.columns].map(|stride| stride as isize);
        // SAFETY: `a` holds every element (i, k) for i < m and `b` every (k, j) for j < n under its strides, as the assertion
        // says, and `c` m·n elements written with strides (n, 1); all three are borrowed for the call, `c` exclusively.
        unsafe {
            let (a, b) = (a.data.as_ptr(), b.data.as_ptr());
            backend(m, k, n, T::one(), a, ar, ac, b, br, bc, T::zero(), c.as_mut_ptr(), n as isize, 1);
        }
    }
}

/// `c[i, j] = Σ_k a[i, k]·b[k, j]`, split by blocks of rows.
pub fn multiply<T: Real>(gemm: Gemm<'_, T>) {
    let Gemm { a, b, c, k, n } = gemm;
    if c.is_empty() {
        return;
    }
    let m = c.len() / n;
    // Few rows are not worth a second thread either.
    if m < 8 || m.saturating_mul(n).saturating_mul(k) < PARALLEL_FROM {
        return T::gemm(Gemm { a, b, c, k, n });
    }
    // About eight blocks, whatever the number of threads.
    let rows = m.div_ceil(8).next_multiple_of(8);
    c.par_chunks_mut(rows * n).enumerate().for_each(|(block, c)| {
        // An empty matrix has no element at which a block could begin.
        let a = Matrix { data: a.data.get(block * rows * a.rows..).unwrap_or_default(), ..a };
        T::gemm(Gemm { a, b, c, k, n });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_all_sizes_and_strides_are_right() {
        for (m, k, n) in [(1, 1, 1), (3, 5, 2), (70, 65, 90), (0, 3, 2), (4, 0, 3), (130, 40, 60)] {
            let number = |i: usize| ((i * 7919 % 101) as f64 - 50.0) / 8.0;
            let (a, b): (Vec<f64>, Vec<f64>) =
                ((0..m * k).map(number).collect(), (0..k * n).map(number).collect());
            let mut c = vec![f64::NAN; m * n];
            multiply(Gemm { a: Matrix::new(&a, m).transpose(), b: Matrix::new(&b, n), c: &mut c, k, n });
            for (at, &c) in c.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let expected: f64 = (0..k).map(|l| a[l * m + i] * b[l * n + j]).sum();
                assert_eq!(c, expected, "{m} x {k} x {n} at {i}, {j}");
            }
        }
    }
}
