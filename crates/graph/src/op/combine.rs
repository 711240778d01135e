//! `combine`: adds up the results of the experts of each row.

use super::shape::{expect_dim, expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `z[i, j] = Σ_s weights[i, s] · y[i, s·w + j]` for `y: [n, k·w]`, `weights: [n, k]`: output `[n, w]`. Without
/// `weights` the plain sum over the blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Combine {
    /// Blocks of columns; divides those of `y`.
    pub k: u32,
}

impl Operator for Combine {
    const NAME: &'static str = "combine";

    /// `[n, k·w]` gives `[n, w]` in the dtype of `y`; the weights may have another dtype.
    ///
    /// # Errors
    /// If `k` is 0 or does not divide the columns, or the weights are not `[n, k]`.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1, 2])?;
        let (rows, columns) = matrix("y", &inputs[0])?;
        let k = u64::from(self.k);
        // A width that depends on the run could not be divided.
        let width = columns.as_const().filter(|c| k > 0 && c.is_multiple_of(k)).map(|c| c / k);
        let width = width.ok_or_else(|| Error::invalid(format!("`k`, {k}, must divide the {columns} columns of `y`")))?;
        if let Some(weights) = inputs.get(1) {
            let (weight_rows, slots) = matrix("weights", weights)?;
            expect_dim("the rows of `weights`", weight_rows, rows)?;
            expect_dim("the columns of `weights`", slots, &Dim::from(k))?;
        }
        Ok(vec![TensorType::new(inputs[0].dtype, [rows.clone(), Dim::from(width)])])
    }

    /// With weights and without, one block and several, and weights in another dtype.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: u32, width: u32, dtype| {
            Sample::new(name, Combine { k }, n, 0).input(dtype, &format!("n,{}", k * width), Fill::Normal(1.0))
        };
        let weighted = |name: &str, n, k, width, dtype, weights| {
            case(name, n, k, width, dtype).input(weights, &format!("n,{k}"), Fill::Normal(0.5))
        };
        vec![
            weighted("prefill", 9, 2, 192, DType::F32, DType::F32),
            weighted("decode", 1, 8, 320, DType::F32, DType::F32),
            weighted("odd sizes", 5, 3, 33, DType::F32, DType::F32),
            weighted("one block", 4, 1, 40, DType::F32, DType::F32),
            case("plain sum", 7, 4, 50, DType::F32),
            weighted("f16", 3, 4, 48, DType::F16, DType::F16),
            // Routers may give weights of another dtype than the experts' results.
            weighted("f16 with weights in f32", 2, 2, 31, DType::F16, DType::F32),
            case("f16, plain sum", 2, 3, 24, DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
