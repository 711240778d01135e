//! `attention`: softmax attention with grouped query heads over a cache.

use super::shape::{expect_dim, expect_inputs, expect_vector, matrix};
use super::{Fill, Operator, Reach, Sample, Saturation};
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `q: [n, heads·d]`, `k: [m, kv_heads·d]`, `v: [m, kv_heads·e]` and optionally `sinks: [heads]` give `y: [n, heads·e]`;
/// `d = head_dim`, `e = value_dim`, `m = n+p` if causal. Query row `i` stands at position `t = p+i`; head `h` reads
/// key/value head `g = h / (heads/kv_heads)`:
///
/// ```text
/// s_j = scale · q[i,h]·k[j,g]          then s_j = cap·tanh(s_j/cap)             if `softcap`
///                                      then s_j = s_j + alibi[h]·(j − t)        if `alibi`
/// y[i,h] = Σ_j exp(s_j)·v[j,g] / (Σ_j exp(s_j) + exp(sinks[h]))                 the last term only if `sinks`
/// ```
///
/// over the keys `j ≤ t` if causal, of these `j > t − window` if `window`, and `⌊j/chunk⌋ = ⌊t/chunk⌋` if `chunk`; over
/// all keys if not causal, where `t = i`, of these `⌊j/chunk⌋ = ⌊t/chunk⌋` if `chunk`, which needs `m = n`. A query that
/// sees no key gives 0.
///
/// Vaswani et al. 2017, section 3.2.1; Ainslie et al. 2023 (grouped queries); Gemma-2 report 2024 (soft cap); Press,
/// Smith, Lewis, "Train Short, Test Long", 2022 (ALiBi); Xiao et al., "Efficient Streaming Language Models with Attention
/// Sinks", 2024, and the gpt-oss model card, 2025 (a learned sink per head); Llama 4, 2025 (chunks).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key/value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of one head of queries and keys.
    pub head_dim: u32,
    /// Elements of one head of values and results; `head_dim` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<u32>,
    /// Factor on the scores.
    pub scale: f32,
    /// Whether a query sees no key behind its own position.
    #[serde(default = "default_true", skip_serializing_if = "is_yes")]
    pub causal: bool,
    /// Only the last `window` positions are seen, the query's own included; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Positions are cut into runs of this many, and only keys of the query's own run are seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u32>,
    /// Soft cap on the scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f32>,
    /// For each query head the score of one position of distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alibi: Option<Vec<f32>>,
}

/// The default of [`Attention::causal`], for serde.
fn default_true() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

impl Attention {
    /// Causal attention without any of the optional attributes.
    pub fn causal(heads: u32, kv_heads: u32, head_dim: u32, scale: f32) -> Attention {
        Attention {
            heads,
            kv_heads,
            head_dim,
            value_dim: None,
            scale,
            causal: true,
            window: None,
            chunk: None,
            softcap: None,
            alibi: None,
        }
    }

    /// Elements of one head of values and results.
    pub fn value_size(&self) -> u32 {
        self.value_dim.unwrap_or(self.head_dim)
    }

    /// Fails if the attributes contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        // Checked first, as others are divided by them.
        let sizes = [heads, kv_heads, self.head_dim, self.value_size()];
        if sizes.contains(&0) || !heads.is_multiple_of(kv_heads) {
            return Err(Error::invalid(format!("`kv_heads` {kv_heads} must divide `heads` {heads}, sizes above 0")));
        }
        for (name, size) in [("window", self.window), ("chunk", self.chunk)] {
            if size == Some(0) {
                return Err(Error::invalid(format!("`{name}` must be at least 1, found 0")));
            }
        }
        if !self.causal && (self.window.is_some() || self.alibi.is_some()) {
            return Err(Error::invalid("`window` and `alibi` need `causal`, found false"));
        }
        match &self.alibi {
            Some(slopes) if slopes.len() != heads as usize || !slopes.iter().all(|s| s.is_finite()) => {
                let found = slopes.len();
                Err(Error::invalid(format!("`alibi` must hold {heads} finite slopes, one per head, found {found}")))
            }
            _ => Ok(()),
        }
    }
}

impl Operator for Attention {
    const NAME: &'static str = "attention";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3, 4])?;
        self.check()?;
        let columns = |heads: u32, size: u32| Dim::from(u64::from(heads) * u64::from(size));
        let (rows, q_columns) = matrix("q", &inputs[0])?;
        let (kv_rows, k_columns) = matrix("k", &inputs[1])?;
        expect_dim("the second size of `q`", q_columns, &columns(self.heads, self.head_dim))?;
        expect_dim("the second size of `k`", k_columns, &columns(self.kv_heads, self.head_dim))?;
        if self.causal {
            // The keys of this step stand behind those of the cache.
            let seen = rows.checked_add(&Dim::symbol(Symbol::P));
            expect_dim("the first size of `k`", kv_rows, &seen.unwrap_or_default())?;
        } else if self.chunk.is_some() {
            expect_dim("the first size of `k`", kv_rows, rows)?;
        }
        let v = TensorType::new(inputs[1].dtype, [kv_rows.clone(), columns(self.kv_heads, self.value_size())]);
        if inputs[2] != v {
            return Err(Error::invalid(format!("`v` must be {v}, found {}", inputs[2])));
        }
        if let Some(sinks) = inputs.get(3) {
            expect_vector("sinks", sinks, &Dim::from(u64::from(self.heads)))?;
        }
        Ok(vec![TensorType::new(inputs[0].dtype, [rows.clone(), columns(self.heads, self.value_size())])])
    }

    fn is_row_dominated(&self) -> bool {
        true
    }

    /// A soft cap saturates by the scores, which grow with the queries.
    fn saturation(&self) -> Option<Saturation> {
        self.softcap.map(|_| Saturation { input: 0, reach: Reach::Scaled })
    }

    fn samples() -> Vec<Sample> {
        let base = |heads, kv_heads, head_dim: u32| {
            Attention::causal(heads, kv_heads, head_dim, (head_dim as f32).powf(-0.5))
        };
        let with_keys = |name: &str, n, p, op: Attention, keys: &str, dtype| {
            let columns = [op.heads * op.head_dim, op.kv_heads * op.head_dim, op.kv_heads * op.value_size()];
            Sample::new(name, op, n, p)
                .input(dtype, &format!("n,{}", columns[0]), Fill::Normal(1.5))
                .input(dtype, &format!("{keys},{}", columns[1]), Fill::Normal(1.5))
                .input(dtype, &format!("{keys},{}", columns[2]), Fill::Normal(1.0))
        };
        let case = |name: &str, n, p, op: Attention, dtype| with_keys(name, n, p, op, "n+p", dtype);
        let sinks = |name: &str, n, p, op: Attention, dtype, of_sinks| {
            let heads = op.heads.to_string();
            case(name, n, p, op, dtype).input(of_sinks, &heads, Fill::Normal(2.0))
        };
        let values = |size, op| Attention { value_dim: Some(size), ..op };
        let chunk = |size, op| Attention { chunk: Some(size), ..op };
        let alibi = |op: Attention| {
            // `2^(−8h/heads)`, as models with a power of two of heads have them.
            let slopes = (1..=op.heads).map(|h| (-8.0 * h as f32 / op.heads as f32).exp2());
            Attention { alibi: Some(slopes.collect()), ..op }
        };
        let all = |op| Attention { causal: false, ..op };
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        vec![
            case("prefill, grouped", 9, 0, base(8, 4, 40), DType::F32),
            case("decode, grouped", 1, 37, base(8, 4, 40), DType::F32),
            case("continued prefill", 5, 6, base(2, 2, 16), DType::F32),
            case("more keys than a tile", 3, 300, base(4, 1, 8), DType::F32),
            case("window", 7, 3, Attention { window: Some(4), ..base(2, 1, 12) }, DType::F32),
            case("soft cap", 4, 2, Attention { softcap: Some(5.0), ..base(2, 2, 10) }, DType::F32),
            case("f16", 3, 5, base(4, 2, 32), DType::F16),
            case("f16, many rows", 70, 9, base(4, 2, 64), f16),
            case("f16, few rows, long heads", 5, 130, base(2, 1, 128), f16),
            case("f16, window", 9, 131, Attention { window: Some(67), ..base(2, 2, 64) }, f16),
            case("one row, f16, heads of 64", 1, 37, base(14, 2, 64), f16),
            case("one row, f16, heads of 64, many keys", 1, 300, base(4, 1, 64), f16),
            case("one row, f16, heads of 128", 1, 260, base(2, 2, 128), f16),
            case("narrow values", 5, 3, values(16, base(4, 2, 24)), f32),
            case("wide values, f16", 3, 66, values(21, base(2, 1, 10)), f16),
            case("one key head wider than its values, decode", 1, 70, values(32, base(4, 1, 36)), f32),
            case("chunk", 9, 5, chunk(6, base(2, 2, 12)), f32),
            case("chunk, decode of its first row", 1, 128, chunk(64, base(4, 2, 8)), f32),
            case("chunk and window", 70, 75, Attention { window: Some(40), ..chunk(50, base(1, 1, 8)) }, f32),
            case("alibi", 6, 70, alibi(base(5, 5, 9)), f32),
            case("alibi, decode, f16", 1, 200, alibi(base(8, 2, 16)), f16),
            sinks("sinks", 4, 9, base(6, 2, 16), f32, f32),
            sinks("sinks of bf16, window, decode", 1, 150, Attention { window: Some(128), ..base(4, 2, 64) }, f32, bf16),
            sinks("sinks of f16", 2, 3, values(5, base(3, 3, 7)), f16, f16),
            with_keys("no mask", 11, 0, all(base(3, 3, 20)), "n", f32),
            with_keys("no mask, chunks", 21, 4, chunk(7, all(base(2, 2, 12))), "n", f32),
            with_keys("no mask, chunks longer than a tile, the last one short", 90, 0, chunk(70, all(base(2, 1, 8))), "n", f32),
            with_keys("no mask, keys of their own, f16", 3, 5, all(values(12, base(4, 2, 16))), "77", f16),
        ]
    }
}
