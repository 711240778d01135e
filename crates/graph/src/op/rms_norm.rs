//! `rms_norm`: root-mean-square normalisation of rows.

use super::shape::{expect_inputs, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, j] = x[i, j] · w[j] / sqrt(mean_j(x[i, j]²) + eps)` for `x: [n, k]`, `w: [k]`.
///
/// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f32,
}

impl Operator for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        expect_vector("w", &inputs[1], columns)?;
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, eps, fill, x, w| {
            Sample::new(name, RmsNorm { eps }, n, 0)
                .input(x, &format!("n,{k}"), fill)
                .input(w, &format!("{k}"), Fill::Around(1.0, 0.2))
        };
        vec![
            case("prefill", 7, 320, 1e-5, Fill::Normal(1.0), DType::F32, DType::F32),
            case("decode, outliers", 1, 320, 1e-5, Fill::Spiky(50.0), DType::F32, DType::BF16),
            case("tiny values, eps decides", 3, 64, 1e-5, Fill::Normal(1e-3), DType::F32, DType::F16),
            case("one column more than a tile", 2, 257, 1e-6, Fill::Normal(2.0), DType::F32, DType::BF16),
            case("f16", 5, 96, 1e-5, Fill::Normal(1.0), DType::F16, DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
