//! `wkv_bonus`: what a token gives to itself in RWKV-7, beside its state.

use super::shape::{expect_heads, expect_inputs, expect_same, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[t, j] = (Σ_i r[t, i] · u[i] · k[t, i]) · v[t, j]`, the sum over the `head_dim` columns of the head of `j`, for
/// `r, k, v: [n, heads·head_dim]` and `u: [heads·head_dim]`.
///
/// Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution", 2025, section 4, equation 19.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WkvBonus {
    /// Columns of a head; divides the columns.
    pub head_dim: u32,
}

impl Operator for WkvBonus {
    const NAME: &'static str = "wkv_bonus";

    /// `r`, `k` and `v` of one type and `u: [heads·head_dim]` give that type.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[4])?;
        let (_, columns) = matrix("r", &inputs[0])?;
        expect_same("r", &inputs[0], "k", &inputs[1])?;
        expect_same("r", &inputs[0], "v", &inputs[2])?;
        expect_heads(columns, self.head_dim)?;
        expect_vector("u", &inputs[3], columns)?;
        Ok(vec![inputs[0].clone()])
    }

    /// Prefill and decode, heads wider than a workgroup, and heads of one channel.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, [heads, d]: [u32; 2], x, u| {
            let width = heads * d;
            let rows = |s: Sample| s.input(x, &format!("n,{width}"), Fill::Normal(1.0));
            rows(rows(rows(Sample::new(name, WkvBonus { head_dim: d }, n, 0)))).input(
                u,
                &format!("{width}"),
                Fill::Normal(0.3),
            )
        };
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        vec![
            case("prefill", 7, [5, 64], f32, f32),
            case("decode", 1, [4, 64], f32, bf16),
            case("odd sizes", 3, [5, 7], f32, f16),
            case("heads wider than a workgroup", 2, [2, 130], f32, f32),
            case("one channel", 4, [3, 1], f32, f32),
            case("f16", 4, [2, 16], f16, f16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
