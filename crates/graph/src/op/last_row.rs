//! `last_row`: the last row of a matrix, so that only one position's logits are computed.

use super::shape::{expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[0, :] = x[n−1, :]` for `x: [n, k]`: output `[1, k]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastRow {}

impl Operator for LastRow {
    const NAME: &'static str = "last_row";

    /// `[n, k]` gives `[1, k]` in the same dtype.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        // Only the row count changes.
        Ok(vec![TensorType::new(inputs[0].dtype, [Dim::from(1u64), columns.clone()])])
    }

    /// Several rows, one row, and a dtype of 16 bits.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, dtype| {
            Sample::new(name, LastRow {}, n, 0).input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
        };
        vec![
            case("prefill", 7, 320, DType::F32),
            case("decode", 1, 33, DType::F32),
            case("f16", 3, 40, DType::F16),
        ]
    }
}
