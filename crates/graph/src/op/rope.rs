//! `rope`: rotates pairs of each head by the angles of its row.

use super::shape::{expect_dim, expect_inputs, matrix};
use super::{Fill, Neutral, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// Rotary embedding of `x: [n, heads·head_dim]` by `angles: f32[n, rotary_dim]` (cosines, then sines; see
/// [`super::RopeAngles`]). With `d = rotary_dim/2`, pair `j` of a head is elements `(j, j+d)`, or `(2j, 2j+1)` if
/// interleaved, and becomes `(a·cos − b·sin, b·cos + a·sin)`. Elements from `rotary_dim` on are copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Elements of one head.
    pub head_dim: u32,
    /// Elements of a head that are rotated: even, at most `head_dim`.
    pub rotary_dim: u32,
    /// Whether pairs are neighbours (GPT-J) instead of halves apart (GPT-NeoX, Llama).
    #[serde(default)]
    pub interleaved: bool,
}

impl Operator for Rope {
    const NAME: &'static str = "rope";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let (rows, columns) = matrix("x", &inputs[0])?;
        let (angle_rows, angle_columns) = matrix("angles", &inputs[1])?;
        // Elements are turned in pairs.
        let even = self.rotary_dim > 0 && self.rotary_dim.is_multiple_of(2) && self.rotary_dim <= self.head_dim;
        if !even || !columns.as_const().is_some_and(|c| c.is_multiple_of(u64::from(self.head_dim))) {
            let (head, rotary) = (self.head_dim, self.rotary_dim);
            return Err(Error::invalid(format!(
                "`rotary_dim` {rotary} must be even and at most `head_dim` {head}, which must divide {columns}"
            )));
        }
        expect_dim("the first size of `angles`", angle_rows, rows)?;
        expect_dim("the second size of `angles`", angle_columns, &Dim::from(u64::from(self.rotary_dim)))?;
        Ok(vec![inputs[0].clone()])
    }

    /// Whole heads and parts of them, pairs of neighbours and halves apart.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, heads: u32, head_dim: u32, rotary_dim: u32, interleaved, dtype| {
            Sample::new(name, Rope { head_dim, rotary_dim, interleaved }, n, 0)
                .input(dtype, &format!("n,{}", heads * head_dim), Fill::Normal(1.0))
                .input(DType::F32, &format!("n,{rotary_dim}"), Fill::Normal(0.7))
        };
        vec![
            case("prefill", 9, 8, 40, 40, false, DType::F32),
            case("decode", 1, 4, 40, 40, false, DType::F32),
            case("partial", 3, 3, 12, 6, false, DType::F32),
            case("interleaved", 5, 2, 10, 10, true, DType::F32),
            case("f16, partial, interleaved", 2, 2, 16, 8, true, DType::F16),
        ]
    }

    fn neutral(&self) -> &'static [&'static [(usize, Neutral)]] {
        &[&[(0, Neutral::Ones), (1, Neutral::Unturned)]]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
