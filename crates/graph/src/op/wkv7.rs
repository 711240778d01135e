//! `wkv7`: the recurrence of RWKV-7, a delta rule with decay by key channel.

use super::shape::{expect_heads, expect_inputs, expect_same, expect_state, matrix};
use super::{Extreme, Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// Each head of `d = head_dim` columns holds a matrix `S: [d, d]` of key channels by value channels. Row by row
///
/// ```text
/// s[j]    = Σ_i a[t, i] · S[i, j]
/// S[i, j] ← exp(−σ(w[t, i]) / √e) · S[i, j] + b[t, i] · s[j] + k[t, i] · v[t, j]
/// y[t, j] = Σ_i r[t, i] · S[i, j]
/// ```
///
/// with the logistic function `σ`. Inputs `r, w, k, v, a, b: [n, heads·d]` and `state: f32[heads·d, d]`, whose row
/// `h·d + i` is row `i` of head `h`. Outputs `y: [n, heads·d]` and the state after the rows. RWKV-7 gives `a = −κ` and
/// `b = κ · rate` with the removal key `κ`, normalised to length 1 in each head, and the in-context learning rate.
///
/// The decay itself is no input: f16 could not tell a decay just below 1 from 1.
///
/// Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution", 2025, section 4, equations 12 and 17.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wkv7 {
    /// Channels of a head; divides the columns.
    pub head_dim: u32,
}

impl Operator for Wkv7 {
    const NAME: &'static str = "wkv7";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[7])?;
        let (_, columns) = matrix("r", &inputs[0])?;
        for (name, ty) in ["w", "k", "v", "a", "b"].iter().zip(&inputs[1..]) {
            expect_same("r", &inputs[0], name, ty)?;
        }
        let width = expect_heads(columns, self.head_dim)?;
        expect_state(&inputs[6], width, &Dim::from(u64::from(self.head_dim)))?;
        Ok(vec![inputs[0].clone(), inputs[6].clone()])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, [heads, d]: [u32; 2], dtype| {
            let width = heads * d;
            let rows = |s: Sample, fill| s.input(dtype, &format!("n,{width}"), fill);
            // The removal key has length 1 or less in each head, as in the model: else the state would grow.
            let key = Fill::Normal(0.6 / (d as f32).sqrt());
            let sample = Sample::new(name, Wkv7 { head_dim: d }, n, 0);
            // Decays of every speed: `w` goes through a logistic function.
            let sample = rows(rows(sample, Fill::Normal(1.0)), Fill::Around(-2.0, 2.0));
            let sample = rows(rows(sample, Fill::Normal(1.0)), Fill::Normal(1.0));
            let state = Fill::Normal(0.5);
            rows(rows(sample, key), key).input(DType::F32, &format!("{width},{d}"), state)
        };
        vec![
            case("prefill", 9, [3, 64], DType::F32),
            case("decode", 1, [2, 64], DType::F32),
            case("odd sizes", 3, [5, 7], DType::F32),
            case("more columns than a workgroup", 2, [1, 65], DType::F32),
            case("one channel", 4, [3, 1], DType::F32),
            case("f16", 4, [2, 16], DType::F16),
        ]
    }

    /// Large rows would grow from step to step.
    fn extremes(&self) -> &'static [Extreme] {
        Extreme::BOUNDED
    }
}
