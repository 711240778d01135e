//! `token_shift`: every row replaced by the row of the token before it.

use super::shape::{expect_inputs, expect_state, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[0, :] = before[0, :]` and `y[i, :] = x[i−1, :]` for `x: [n, k]`, `before: f32[1, k]`; outputs `y: [n, k]` and
/// `after = x[n−1, :]: f32[1, k]`, what the next step takes as `before`.
///
/// Peng et al., "RWKV: Reinventing RNNs for the Transformer Era", 2023, section 3.1.1 (token shift).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenShift {}

impl Operator for TokenShift {
    const NAME: &'static str = "token_shift";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        expect_state(&inputs[1], 1, columns)?;
        // Both inputs keep their types: the rows, and the row that the next step takes.
        Ok(inputs.to_vec())
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, dtype| {
            Sample::new(name, TokenShift {}, n, 0)
                .input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
                .input(DType::F32, &format!("1,{k}"), Fill::Normal(1.0))
        };
        vec![
            case("prefill", 7, 320, DType::F32),
            case("decode", 1, 160, DType::F32),
            case("odd width", 3, 33, DType::F32),
            case("f16", 2, 40, DType::F16),
        ]
    }
}
