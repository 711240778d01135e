//! `wkv`: the recurrence of RWKV-5 and RWKV-6, linear attention whose state decays by key channel.

use super::shape::{expect_heads, expect_inputs, expect_same, expect_state, expect_vector, matrix};
use super::{Extreme, Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// Each head of `d = head_dim` columns holds a matrix `S: [d, d]` of key channels by value channels. Row by row
///
/// ```text
/// y[t, j] = Σ_i r[t, i] · (S[i, j] + u[i] · k[t, i] · v[t, j])
/// S[i, j] ← exp(−exp(w[t, i])) · S[i, j] + k[t, i] · v[t, j]
/// ```
///
/// Inputs `r, k, v: [n, heads·d]`, `w: [heads·d]` (RWKV-5: one decay per channel) or `[n, heads·d]` (RWKV-6: one per
/// token and channel), the bonus `u: [heads·d]`, and `state: f32[heads·d, d]`, whose row `h·d + i` is row `i` of head
/// `h`. Outputs `y: [n, heads·d]` and the state after the rows.
///
/// The decay itself is no input: f16 could not tell a decay just below 1 from 1.
///
/// Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", 2024, sections 4.1 and 4.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wkv {
    /// Channels of a head; divides the columns.
    pub head_dim: u32,
}

impl Operator for Wkv {
    const NAME: &'static str = "wkv";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[6])?;
        let (_, columns) = matrix("r", &inputs[0])?;
        expect_same("r", &inputs[0], "k", &inputs[1])?;
        expect_same("r", &inputs[0], "v", &inputs[2])?;
        let width = expect_heads(columns, self.head_dim)?;
        // The rank tells RWKV-6 from RWKV-5.
        match inputs[3].shape.len() {
            2 => expect_same("r", &inputs[0], "w", &inputs[3])?,
            _ => expect_vector("w", &inputs[3], columns)?,
        }
        expect_vector("u", &inputs[4], columns)?;
        expect_state(&inputs[5], width, &Dim::from(u64::from(self.head_dim)))?;
        Ok(vec![inputs[0].clone(), inputs[5].clone()])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, [heads, d]: [u32; 2], x, w: (DType, &str), u| {
            let width = heads * d;
            let rows = |s: Sample| s.input(x, &format!("n,{width}"), Fill::Normal(1.0));
            let decays = w.1.replace('w', &width.to_string());
            rows(rows(rows(Sample::new(name, Wkv { head_dim: d }, n, 0))))
                // `exp(−exp(w))` is then near 1, as in models.
                .input(w.0, &decays, Fill::Around(-3.0, 1.5))
                .input(u, &format!("{width}"), Fill::Around(0.5, 0.3))
                .input(DType::F32, &format!("{width},{d}"), Fill::Normal(0.5))
        };
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        vec![
            case("prefill", 9, [3, 64], f32, (f32, "n,w"), f32),
            case("decode", 1, [2, 64], f32, (f32, "n,w"), bf16),
            case("one decay per channel", 5, [2, 32], f32, (f32, "w"), f32),
            case("bf16 decays, f16 bonus, odd sizes", 3, [5, 7], f32, (bf16, "w"), f16),
            case("f16 decays, more columns than a workgroup", 2, [1, 65], f32, (f16, "w"), f32),
            case("one channel", 4, [3, 1], f32, (f32, "n,w"), f32),
            case("f16", 4, [2, 16], f16, (f16, "n,w"), f16),
        ]
    }

    /// Large rows would grow from step to step.
    fn extremes(&self) -> &'static [Extreme] {
        Extreme::BOUNDED
    }
}
