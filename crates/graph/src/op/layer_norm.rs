//! `layer_norm`: normalisation of rows to mean 0 and variance 1.

use super::shape::{expect_inputs, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, j] = (x[i, j] − m_i) · w[j] / sqrt(v_i + eps) (+ b[j])` for `x: [n, k]`, `w: [k]`, `b: [k]`, with
/// `m_i = mean_j(x[i, j])` and `v_i = mean_j((x[i, j] − m_i)²)`.
///
/// Ba, Kiros, Hinton, "Layer Normalization", 2016, equations 3 and 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f32,
}

impl Operator for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2, 3])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        expect_vector("w", &inputs[1], columns)?;
        if let Some(bias) = inputs.get(2) {
            expect_vector("b", bias, columns)?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, eps, fill, x, w| {
            Sample::new(name, LayerNorm { eps }, n, 0)
                .input(x, &format!("n,{k}"), fill)
                .input(w, &format!("{k}"), Fill::Around(1.0, 0.2))
        };
        let biased = |name: &str, n, k: usize, eps, fill, x, w, b| {
            case(name, n, k, eps, fill, x, w).input(b, &format!("{k}"), Fill::Normal(0.5))
        };
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        vec![
            biased("prefill", 7, 320, 1e-5, Fill::Normal(1.0), f32, f32, f32),
            biased("decode, outliers", 1, 320, 1e-5, Fill::Spiky(50.0), f32, bf16, bf16),
            case("no bias", 4, 192, 1e-5, Fill::Normal(1.0), f32, f32),
            biased("mean far from 0", 3, 256, 1e-5, Fill::Around(300.0, 1.0), f32, f32, f16),
            case("tiny values, eps decides", 3, 64, 1e-5, Fill::Normal(1e-3), f32, f16),
            biased("one column more than a tile", 2, 257, 1e-6, Fill::Normal(2.0), f32, bf16, f32),
            biased("fewer columns than a tile", 5, 3, 1e-5, Fill::Normal(1.0), f32, f16, bf16),
            biased("f16", 5, 96, 1e-5, Fill::Normal(1.0), f16, f16, f16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
