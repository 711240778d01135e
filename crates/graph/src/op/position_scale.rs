//! `position_scale`: scales rows by a function of their position.

use super::shape::{expect_dim, expect_indices, expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, :] = f(t) · x[i, :]` for `x: [n, k]` and the position `t` of row `i`, which is `p + i` or that of the optional
/// input `positions: u32[n]`: queries of far positions are scaled up, so that attention over many keys does not flatten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionScale {
    /// The function.
    pub form: PositionForm,
}

/// The functions of [`PositionScale`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PositionForm {
    /// `f(t) = 1 + beta · ln(1 + ⌊(t + shift) / floor⌋)`, as in Llama-4 (`shift` 1) and Ministral-3 (`shift` 0).
    Llama4 {
        /// Growth with the logarithm.
        beta: f32,
        /// Positions between two steps of the function; above 0.
        floor: u32,
        /// Added to the position.
        shift: u32,
    },
    /// `f(t) = max(1, ln(t + 1) / ln(train))`. Su, "Scaling attention by the logarithm of the length", 2021; Qwen.
    LogN {
        /// Positions that the model was trained for; above 1.
        train: u32,
    },
}

impl Operator for PositionScale {
    const NAME: &'static str = "position_scale";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1, 2])?;
        let (rows, _) = matrix("x", &inputs[0])?;
        if let Some(positions) = inputs.get(1) {
            expect_dim("the length of `positions`", expect_indices("positions", positions)?, rows)?;
        }
        match self.form {
            PositionForm::Llama4 { floor: 0, .. } => Err(Error::invalid("`floor` must be above 0")),
            // The logarithm of 1 is 0, by which the function divides.
            PositionForm::LogN { train: train @ ..2 } => {
                Err(Error::invalid(format!("`train` must be above 1, found {train}")))
            }
            _ => Ok(vec![inputs[0].clone()]),
        }
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, p, k: usize, form, dtype| {
            Sample::new(name, PositionScale { form }, n, p).input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
        };
        let steps = |floor, shift| PositionForm::Llama4 { beta: 0.1, floor, shift };
        let log = |train| PositionForm::LogN { train };
        vec![
            case("steps within a prefill", 9, 3, 160, steps(4, 1), DType::F32),
            case("steps, decode far away", 1, 100_000, 320, steps(8192, 0), DType::F32),
            case("steps, many in a row, odd size", 33, 0, 7, steps(1, 0), DType::F32),
            case("logarithm, below and beyond the training", 9, 5, 33, log(10), DType::F32),
            case("logarithm, decode", 1, 8191, 320, log(2048), DType::F32),
            case("logarithm, f16, odd size", 3, 40_000, 21, log(2048), DType::F16),
            case("steps, f16", 3, 6, 40, steps(2, 1), DType::F16),
            case("steps, positions that are given", 5, 7, 33, steps(4, 1), DType::F32)
                .input(DType::U32, "n", Fill::Values("9,0,70000,3,4")),
            case("logarithm, positions that are given", 2, 0, 40, log(16), DType::F16)
                .input(DType::U32, "n", Fill::Values("4095,3")),
        ]
    }
}
