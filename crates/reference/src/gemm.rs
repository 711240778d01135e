//! One product of matrices on this thread, by `matrixmultiply`.

/// `c[i, j] = Σ_k a[i, k]·b[j, k]` on this thread; the count of rows follows from the lengths.
pub struct Gemm<'a, T> {
    /// `[m, k]`.
    pub a: &'a [T],
    /// `[n, k]`.
    pub b: &'a [T],
    /// `[m, n]`.
    pub c: &'a mut [T],
    /// Elements of a row of `a` and of `b`; at least 1.
    pub k: usize,
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

impl<T> Gemm<'_, T> {
    /// Computes it with this function of `matrixmultiply` and the type's 0 and 1.
    #[allow(unsafe_code)]
    pub(crate) fn run(self, backend: GemmFunction<T>, zero: T, one: T) {
        let Gemm { a, b, c, k } = self;
        let n = b.len() / k;
        let m = c.len() / n.max(1);
        // The lengths are what the unsafe call below relies on.
        assert_eq!((c.len(), b.len()), (m * n, n * k), "the output has one element per pair of rows");
        assert_eq!(a.len(), m * k, "the first matrix has as many rows");
        // SAFETY: `a` holds m·k elements read with strides (k, 1), as the assertion says, `b` n·k elements read as its
        // transpose with strides (1, k), and `c` m·n elements written with strides (n, 1); all three are borrowed for the
        // call, `c` exclusively.
        unsafe {
            backend(
                m,
                k,
                n,
                one,
                a.as_ptr(),
                k as isize,
                1,
                b.as_ptr(),
                1,
                k as isize,
                zero,
                c.as_mut_ptr(),
                n as isize,
                1,
            );
        }
    }
}
