//! One product of matrices on this thread, by `matrixmultiply`.

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

impl<T: num_traits::Float> Gemm<'_, T> {
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
