//! Products of matrices by the packed GEMM of `matrixmultiply`, in parallel. How the work is split follows from the sizes
//! alone, so results do not depend on the number of threads.

pub use crate::gemm::{Gemm, Matrix};
use crate::real::Real;
use rayon::prelude::*;

/// Products below which one thread is faster than two.
const PARALLEL_FROM: usize = 1 << 18;

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
