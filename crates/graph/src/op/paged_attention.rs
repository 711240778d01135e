//! `paged_attention`: attention of rows of several texts, whose keys and values lie in pages.

use super::shape::{expect_dim, expect_indices, expect_inputs, indices, matrix};
use super::{Attention, Fill, Operator, Sample};
use crate::pools::Pools;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `q: [n, heads·d]`, `k: [r, kv_heads·d]`, `v: [r, kv_heads·e]`, `positions: u32[n]`, `texts: u32[n]`, `pages: u32[t, b]`
/// and optionally `sinks: [heads]` give `y: [n, heads·e]`. Query row `i` belongs to text `c = texts[i]` and stands at
/// position `positions[i]` of it. It computes what [`Attention`] does with the keys and values of its own text, of which
/// position `j` is row `pages[c, j / page]·page + j % page` of `k` and of `v`.
///
/// `c ≥ t` gives a row of zeros: rows that fill up a step belong to no text. Positions must be below `b·page` and pages below
/// `r / page`. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023,
/// section 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagedAttention {
    /// What each row computes; causal.
    pub attention: Attention,
    /// Positions in one page; at least 1.
    pub page: u32,
}

impl PagedAttention {
    /// Number of the input that tells the sinks.
    pub const SINKS: usize = 6;
}

impl Operator for PagedAttention {
    const NAME: &'static str = "paged_attention";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[Self::SINKS, Self::SINKS + 1])?;
        if !self.attention.causal || self.page == 0 {
            return Err(Error::invalid("`attention` must be causal, and `page` at least 1"));
        }
        let (rows, _) = matrix("q", &inputs[0])?;
        let (cached, _) = matrix("k", &inputs[1])?;
        for (name, input) in [("positions", &inputs[3]), ("texts", &inputs[4])] {
            expect_dim(&format!("the length of `{name}`"), expect_indices(name, input)?, rows)?;
        }
        indices("pages", &inputs[5])?;
        if !cached.as_const().is_some_and(|rows| rows.is_multiple_of(u64::from(self.page))) {
            let page = self.page;
            return Err(Error::invalid(format!("`k` must hold whole pages of {page} rows, found {cached} rows")));
        }
        self.attention.check()?;
        // A row sees keys of its own text, of which there may be any number: the sizes are those of an attention without a mask.
        let plain = Attention { causal: false, window: None, chunk: None, alibi: None, ..self.attention.clone() };
        let seen: Vec<TensorType> = inputs[..3].iter().chain(inputs.get(Self::SINKS)).cloned().collect();
        plain.infer(&seen)
    }

    fn pools(&self, _inputs: &[TensorType]) -> Option<Pools> {
        Some(Pools { inputs: vec![1, 2], outputs: Vec::new(), part: self.page as usize, table: 5 })
    }

    fn is_row_dominated(&self) -> bool {
        true
    }

    fn saturation(&self) -> Option<super::Saturation> {
        self.attention.saturation()
    }

    fn samples() -> Vec<Sample> {
        let base =
            |heads, kv_heads, head_dim: u32| Attention::causal(heads, kv_heads, head_dim, (head_dim as f32).powf(-0.5));
        // Three texts of up to 80 positions in 12 pages of 16 rows.
        let case = |name: &str, n, op: Attention, dtype, positions, texts| {
            let columns = [op.heads * op.head_dim, op.kv_heads * op.head_dim, op.kv_heads * op.value_size()];
            Sample::new(name, PagedAttention { attention: op, page: 16 }, n, 0)
                .input(dtype, &format!("n,{}", columns[0]), Fill::Normal(1.5))
                .input(dtype, &format!("192,{}", columns[1]), Fill::Normal(1.5))
                .input(dtype, &format!("192,{}", columns[2]), Fill::Normal(1.0))
                .input(DType::U32, "n", Fill::Values(positions))
                .input(DType::U32, "n", Fill::Values(texts))
                .input(DType::U32, "3,5", Fill::Values("7,2,11,0,5,3,2,8,9,10,1,4,6,7,3"))
        };
        let (f32, f16) = (DType::F32, DType::F16);
        let slopes = vec![0.5, 0.25, 0.125, 0.0625];
        // Every mask and every change of scores, with heads that are whole pieces of eight elements.
        let eights = |op: Attention| [
            ("window, heads of eights", Attention { window: Some(20), ..op.clone() }),
            ("chunk, heads of eights", Attention { chunk: Some(24), ..op.clone() }),
            ("soft cap, heads of eights", Attention { softcap: Some(5.0), ..op.clone() }),
            ("alibi, heads of eights", Attention { alibi: Some(slopes.clone()), ..op }),
        ];
        let eights = eights(base(4, 2, 24)).map(|(name, op)| case(name, 5, op, f32, "79,40,19,20,21", "0,1,2,2,2"));
        eights.into_iter().chain([
            case("one row of each text", 3, base(8, 4, 40), f32, "79,0,17", "0,1,2"),
            case("a prompt beside two rows", 7, base(4, 2, 16), f32, "14,15,16,17,18,63,64", "1,1,1,1,1,2,0"),
            case("rows of no text", 4, base(2, 2, 12), f32, "3,0,0,31", "2,3,4294967295,0"),
            case("window", 5, Attention { window: Some(20), ..base(2, 1, 12) }, f32, "79,40,19,20,21", "0,1,2,2,2"),
            case("chunk", 4, Attention { chunk: Some(24), ..base(2, 2, 12) }, f32, "47,48,23,79", "0,0,1,2"),
            case("soft cap", 2, Attention { softcap: Some(5.0), ..base(2, 2, 10) }, f32, "33,70", "1,0"),
            case("alibi", 3, Attention { alibi: Some(slopes), ..base(4, 4, 9) }, f32, "66,5,31", "0,1,2"),
            case("narrow values", 2, Attention { value_dim: Some(16), ..base(4, 2, 24) }, f32, "79,16", "2,1"),
            case("latent heads, f16", 4, Attention { value_dim: Some(128), ..base(2, 2, 192) }, f16, "79,40,41,3", "0,1,1,2"),
            case("f16", 3, base(4, 2, 64), f16, "79,15,16", "0,1,2"),
            case("sinks", 3, base(6, 2, 16), f32, "50,0,15", "0,1,2").input(f32, "6", Fill::Normal(2.0)),
            case("long heads, f16", 4, base(4, 1, 128), f16, "79,70,3,0", "0,1,2,3"),
            // Tiles of rows that begin and end within a text, beside rows of others.
            case("prompts of grouped heads, f16", 32, base(8, 2, 64), f16, "79,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,0,1,2,3,4,5,6", "0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2"),
            case("prompts and a window, f16", 24, Attention { window: Some(20), ..base(2, 2, 128) }, f16, "50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,63,2", "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2,3"),
            case("longest heads", 2, base(14, 2, 256), f32, "79,64", "0,1"),
        ])
        .collect()
    }
}
