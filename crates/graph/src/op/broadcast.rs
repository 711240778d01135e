//! How the second operand of an element-wise operator stretches to the shape of the first.

use super::shape::matrix;
use super::{Fill, Op, Sample, sample::elementwise};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;

/// What one element of the second operand meets of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broadcast {
    /// The element at the same place: both have one type.
    Whole,
    /// A column: the operand is a vector, such as a weight, that serves every row.
    Row,
    /// A row: the operand is a matrix of one column, which serves every column.
    Column,
}

impl Broadcast {
    /// How `b` stretches to `a`. Fails unless it has the type of `a` or, for `a: [n, k]`, is a float vector of `k` or a
    /// `[n, 1]` of the dtype of `a`.
    pub fn from_types(a: &TensorType, b: &TensorType) -> Result<Broadcast> {
        // Operands of one type may have any rank.
        if a == b {
            return Ok(Broadcast::Whole);
        }
        let (rows, columns) = matrix("a", a)?;
        match b.shape.as_slice() {
            // A vector may have another float dtype: weights are stored in their own.
            [len] if len == columns && b.dtype.is_float() => Ok(Broadcast::Row),
            [len, one] if len == rows && *one == Dim::from(1u64) && b.dtype == a.dtype => {
                Ok(Broadcast::Column)
            }
            _ => Err(Error::invalid(format!(
                "`b` must be {a}, a float vector of {columns} or {}[{rows},1], found {b}",
                a.dtype
            ))),
        }
    }
}

/// Samples of an element-wise operator of two inputs.
pub fn samples(op: &Op) -> Vec<Sample> {
    let stretched = |name: &str, n, k: usize, dtype, b, shape: &str| {
        Sample::new(name, op.clone(), n, 0).input(dtype, &format!("n,{k}"), Fill::Normal(1.0)).input(
            b,
            shape,
            Fill::Normal(1.0),
        )
    };
    let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
    let mut samples = elementwise(op, 2);
    samples.extend([
        stretched("a row for all rows", 5, 300, f32, f32, "300"),
        stretched("a row for all rows, bf16, odd size, decode", 1, 33, f32, bf16, "33"),
        stretched("a row for all rows, f16", 3, 41, f16, f16, "41"),
        stretched("a column for all columns", 7, 130, f32, f32, "n,1"),
        stretched("a column for all columns, f16, odd size", 3, 21, f16, f16, "n,1"),
    ]);
    samples
}
