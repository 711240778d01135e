//! `attention`: causal softmax attention with grouped query heads over a cache.

use super::shape::{expect_dim, expect_inputs, expect_same, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `q: [n, heads·d]`, `k, v: [n+p, kv_heads·d]` give `y: [n, heads·d]`. Query row `i` stands at position `p+i`; head
/// `h` reads key/value head `g = h / (heads/kv_heads)`:
/// `s_j = scale · q[i,h]·k[j,g]`, then `s_j = cap·tanh(s_j/cap)` if `softcap`, masked to
/// `p+i−window < j ≤ p+i`, `y[i,h] = Σ_j softmax(s)_j · v[j,g]`.
///
/// Vaswani et al. 2017, section 3.2.1; Ainslie et al. 2023 (grouped queries); Gemma-2 report 2024 (soft cap).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key/value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Factor on the scores.
    pub scale: f32,
    /// Only the last `window` positions are seen, the query's own included; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Soft cap on the scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f32>,
}

impl Operator for Attention {
    const NAME: &'static str = "attention";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3])?;
        let (heads, kv_heads, d) = (self.heads, self.kv_heads, u64::from(self.head_dim));
        if heads == 0 || kv_heads == 0 || d == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(Error::invalid(format!("`kv_heads` {kv_heads} must divide `heads` {heads}, sizes above 0")));
        }
        let (rows, q_columns) = matrix("q", &inputs[0])?;
        let (kv_rows, kv_columns) = matrix("k", &inputs[1])?;
        expect_same("k", &inputs[1], "v", &inputs[2])?;
        expect_dim("the second size of `q`", q_columns, &Dim::from(u64::from(heads) * d))?;
        expect_dim("the second size of `k`", kv_columns, &Dim::from(u64::from(kv_heads) * d))?;
        let seen = rows.checked_add(&Dim::symbol(Symbol::P));
        expect_dim("the first size of `k`", kv_rows, &seen.unwrap_or_default())?;
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        let base = |heads, kv_heads, head_dim| Attention {
            heads,
            kv_heads,
            head_dim,
            scale: (head_dim as f32).powf(-0.5),
            window: None,
            softcap: None,
        };
        let case = |name: &str, n, p, op: Attention, dtype| {
            let (q, kv) = (op.heads * op.head_dim, op.kv_heads * op.head_dim);
            Sample::new(name, op, n, p)
                .input(dtype, &format!("n,{q}"), Fill::Normal(1.5))
                .input(dtype, &format!("n+p,{kv}"), Fill::Normal(1.5))
                .input(dtype, &format!("n+p,{kv}"), Fill::Normal(1.0))
        };
        vec![
            case("prefill, grouped", 9, 0, base(8, 4, 40), DType::F32),
            case("decode, grouped", 1, 37, base(8, 4, 40), DType::F32),
            case("continued prefill", 5, 6, base(2, 2, 16), DType::F32),
            case("more keys than a tile", 3, 300, base(4, 1, 8), DType::F32),
            case("window", 7, 3, Attention { window: Some(4), ..base(2, 1, 12) }, DType::F32),
            case("soft cap", 4, 2, Attention { softcap: Some(5.0), ..base(2, 2, 10) }, DType::F32),
            case("f16", 3, 5, base(4, 2, 32), DType::F16),
        ]
    }
}
