//! `merge_rows`: replaces rows by those of another matrix.

use super::shape::{expect_dim, expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, :] = source[slots[i], :]` where `slots[i] < m`, else `x[i, :]`, for `x: [n, k]`, `source: [m, k]`,
/// `slots: u32[n]`.
///
/// Puts the features of images in the place of the tokens that stand for them (LLaVA, Liu et al. 2023, section 4.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeRows {}

impl Operator for MergeRows {
    const NAME: &'static str = "merge_rows";

    /// `x: [n, k]`, `source: [m, k]` and `slots: u32[n]` give `[n, k]`.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3])?;
        let (rows, columns) = matrix("x", &inputs[0])?;
        let (_, source_columns) = matrix("source", &inputs[1])?;
        expect_dim("the second size of `source`", source_columns, columns)?;
        if inputs[0].dtype != inputs[1].dtype {
            return Err(Error::invalid(format!("`x` is {}, `source` is {}", inputs[0].dtype, inputs[1].dtype)));
        }
        // Indices, not numbers: the dtype is checked as well.
        match inputs[2].shape.as_slice() {
            [len] if inputs[2].dtype == DType::U32 => expect_dim("the length of `slots`", len, rows)?,
            _ => return Err(Error::invalid(format!("`slots` must be a u32 vector of {rows}, found {}", inputs[2]))),
        }
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, m: u32, k: usize, limit, dtype| {
            Sample::new(name, MergeRows {}, n, 0)
                .input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
                .input(dtype, &format!("{m},{k}"), Fill::Normal(1.0))
                .input(DType::U32, "n", Fill::Below(limit))
        };
        vec![
            case("some rows", 11, 6, 320, 12, DType::F32),
            case("all rows", 5, 4, 33, 4, DType::F32),
            // Slots of tokens that stand for themselves may be any number from `m` on.
            case("decode", 1, 3, 320, u32::MAX, DType::F32),
            case("one row to choose from", 7, 1, 41, 2, DType::F32),
            case("f16, odd sizes", 3, 3, 21, 6, DType::F16),
        ]
    }
}
