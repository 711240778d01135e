//! Products of matrices: `MatMul` and `Gemm` of the standard, `FusedMatMul` of ONNX Runtime.
//!
//! Floats are multiplied by [`crate::product`], integers by a loop that wraps.

use crate::array::{Array, StridedWalk, broadcast_shape, broadcast_strides, volume};
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::product::{Gemm, Matrix, multiply};
use crate::real::{Int, Real, with_int};
use tapml_graph::{Error, Result};

/// What a product of stacks of matrices needs: `[…, m, k]` times `[…, k, n]`, by the rules of NumPy's `matmul`.
struct MatrixStacks {
    /// The shape of the result.
    shape: Vec<usize>,
    /// Rows of each matrix of the left operand.
    m: usize,
    /// Terms of each sum.
    k: usize,
    /// Columns of each matrix of the right operand.
    n: usize,
    /// Which matrix of each operand every matrix of the result needs.
    pairs: Vec<(usize, usize)>,
}

impl MatrixStacks {
    /// From the shapes of both operands.
    ///
    /// # Errors
    /// If one is a scalar, if the inner sizes differ, or if the stacks do not broadcast.
    fn new(a: &[usize], b: &[usize]) -> Result<MatrixStacks> {
        let wrong = || Error::invalid(format!("matrices {a:?} and {b:?} cannot be multiplied"));
        let (&last, &first) = a.last().zip(b.first()).ok_or_else(wrong)?;
        let (a_stack, m, k) = match a {
            [stack @ .., m, k] => (stack, *m, *k),
            // A vector on the left is one row, one on the right one column. The result has no such axis.
            _ => (&[][..], 1, last),
        };
        let (b_stack, inner, n) = match b {
            [stack @ .., k, n] => (stack, *k, *n),
            _ => (&[][..], first, 1),
        };
        if inner != k {
            return Err(wrong());
        }
        let mut shape = broadcast_shape([a_stack, b_stack])?;
        volume(&shape)?;
        let walk = |own: &[usize]| Ok(StridedWalk::new(&shape, &broadcast_strides(own, &shape)?));
        let pairs = walk(a_stack)?.zip(walk(b_stack)?).collect();
        // The axes of the matrices follow those of the stacks.
        shape.extend((a.len() > 1).then_some(m));
        shape.extend((b.len() > 1).then_some(n));
        volume(&shape)?;
        Ok(MatrixStacks { shape, m, k, n, pairs })
    }
}

/// The product of stacks of matrices.
pub fn multiply_stacks<T: Real>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
    let MatrixStacks { shape, m, k, n, pairs } = MatrixStacks::new(&a.shape, &b.shape)?;
    let mut y = Array::<T>::zeros(shape)?;
    if y.data.is_empty() {
        return Ok(y);
    }
    for (c, &(left, right)) in y.data.chunks_mut(m * n).zip(&pairs) {
        let a = Matrix::new(&a.data[left * m * k..(left + 1) * m * k], k);
        let b = Matrix::new(&b.data[right * k * n..(right + 1) * k * n], n);
        multiply(Gemm { a, b, c, k, n });
    }
    Ok(y)
}

/// The product of stacks of matrices of integers, which wraps in their width.
pub fn stacked_integers<T: Int>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
    let MatrixStacks { shape, m, k, n, pairs } = MatrixStacks::new(&a.shape, &b.shape)?;
    let mut y = Array::<T>::zeros(shape)?;
    if y.data.is_empty() {
        return Ok(y);
    }
    for (c, &(left, right)) in y.data.chunks_mut(m * n).zip(&pairs) {
        for (row, c) in c.chunks_mut(n).enumerate() {
            // In this order a row of `b` is read in one run.
            for at in 0..k {
                let a = a.data[(left * m + row) * k + at];
                let b = &b.data[(right * k + at) * n..][..n];
                c.iter_mut().zip(b).for_each(|(c, &b)| *c = c.wrapping_add(&a.times(b)));
            }
        }
    }
    Ok(y)
}

/// NumPy's `matmul`.
pub fn matmul(call: &Call<'_>) -> Outputs {
    match call.dtype(0)? {
        dtype if !dtype.is_float() => with_int!(dtype, T => {
            call.like_first(stacked_integers(&call.array::<T>(0)?, &call.array::<T>(1)?)?)
        }),
        _ if call.is_double() => {
            call.like_first(multiply_stacks(&call.array::<f64>(0)?, &call.array::<f64>(1)?)?)
        }
        _ => call.like_first(multiply_stacks(&call.array::<f32>(0)?, &call.array::<f32>(1)?)?),
    }
}

/// `Gemm`: `alpha·A·B + beta·C`; before version 7, `C` is broadcast by `broadcast` alone.
pub fn gemm<T: Real>(call: &Call<'_>) -> Outputs {
    call.like_first(gemm_sum::<T>(call)?)
}

/// What `Gemm` gives.
pub fn gemm_sum<T: Real>(call: &Call<'_>) -> Result<Array<T>> {
    // Unlike `MatMul`, `Gemm` takes matrices alone.
    let side = |place: usize, name| {
        let matrix = call.array::<T>(place)?;
        match (matrix.rank(), call.flag(name, false)?) {
            (2, true) => Ok(matrix.transpose(&[1, 0])),
            (2, false) => Ok(matrix),
            _ => Err(Error::invalid(format!("input {place}: expected a matrix, found {:?}", matrix.shape))),
        }
    };
    call.ignore(&["broadcast"]);
    let (alpha, beta) = (T::nearest(call.float_or("alpha", 1.0)?), T::nearest(call.float_or("beta", 1.0)?));
    let mut y = multiply_stacks(&side(0, "transA")?, &side(1, "transB")?)?;
    y.data.iter_mut().for_each(|y| *y = alpha * *y);
    if let Some(c) = call.optional_array::<T>(2)? {
        // Unidirectional: `C` broadcasts to the product, never the other way.
        let c = c.broadcast(&y.shape)?;
        y.data.iter_mut().zip(&c.data).for_each(|(y, &c)| *y += beta * c);
    }
    Ok(y)
}

/// `FusedMatMul` of ONNX Runtime: NumPy's `matmul` of perhaps transposed matrices, times `alpha`.
pub fn fused_matmul<T: Real>(call: &Call<'_>) -> Outputs {
    if call.flag("transBatchA", false)? || call.flag("transBatchB", false)? {
        return Err(Error::unsupported("transposed batches are not served"));
    }
    let side = |place: usize, name| {
        let matrix = call.array::<T>(place)?;
        let rank = matrix.rank();
        if call.flag(name, false)? && rank > 1 {
            let order: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
            Ok(matrix.transpose(&order))
        } else {
            Ok(matrix)
        }
    };
    let alpha = T::nearest(call.float_or("alpha", 1.0)?);
    let mut y = multiply_stacks(&side(0, "transA")?, &side(1, "transB")?)?;
    y.data.iter_mut().for_each(|y| *y = alpha * *y);
    call.like_first(y)
}

/// `FusedMatMul`: the inner size.
pub fn fused_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(sizes.size(0, if sizes.int("transA", 0) != 0 { -2 } else { -1 }))
}

/// `Gemm`: the inner size, and the matrix that is added.
pub fn gemm_terms(sizes: &InputSizes<'_>) -> CallFacts {
    terms(
        sizes
            .size(0, if sizes.int("transA", 0) != 0 { 0 } else { 1 })
            .saturating_add(usize::from(sizes.has(2))),
    )
}

/// Terms of a product: the last size of the first operand.
pub fn matmul_terms(sizes: &InputSizes<'_>) -> CallFacts {
    CallFacts { exact: sizes.dtype(0).is_some_and(|dtype| !dtype.is_float()), ..terms(sizes.size(0, -1)) }
}
