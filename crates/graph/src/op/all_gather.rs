//! `all_gather`: puts the columns that the ranks of a sharded graph have computed side by side.

use super::shape::{expect_dim, expect_inputs, expect_meeting, expect_ranks, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = [x_0 x_1 …]` for `x_r: [n, k_r]` of every rank `r`, in the order of ranks: output `[n, Σ k_r]`, which every rank is
/// given.
///
/// Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019,
/// section 3 (the output embedding).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllGather {
    /// Ranks, of each of which there is an input; at least 2.
    pub ranks: u32,
    /// In the graph of one rank: which one that is. Then the inputs are its own part and the memory in which the ranks meet, one
    /// for each rank; see [`crate::Graph::rank_graph`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

impl Operator for AllGather {
    const NAME: &'static str = "all_gather";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_ranks(self.ranks)?;
        if let Some(rank) = self.rank {
            expect_meeting(inputs, self.ranks, rank)?;
            let (rows, columns) = matrix("x", &inputs[0])?;
            let all = columns.checked_mul(u64::from(self.ranks));
            let all = all.ok_or_else(|| Error::invalid("the column count overflows"))?;
            return Ok(vec![TensorType::new(inputs[0].dtype, [rows.clone(), all])]);
        }
        expect_inputs(inputs, &[self.ranks as usize])?;
        let (rows, _) = matrix("x_0", &inputs[0])?;
        let mut all = Dim::from(0u64);
        for (rank, input) in inputs.iter().enumerate() {
            let (own_rows, columns) = matrix(&format!("x_{rank}"), input)?;
            expect_dim(&format!("the first size of `x_{rank}`"), own_rows, rows)?;
            if input.dtype != inputs[0].dtype {
                let (first, found) = (inputs[0].dtype, input.dtype);
                return Err(Error::invalid(format!("`x_0` is {first}, `x_{rank}` is {found}")));
            }
            // Checked, as sizes of a graph may be anything.
            all = all.checked_add(columns).ok_or_else(|| Error::invalid("the column count overflows"))?;
        }
        Ok(vec![TensorType::new(inputs[0].dtype, [rows.clone(), all])])
    }

    /// Equal and unequal parts, decode, and 16 bits.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, parts: &[u32], dtype| {
            let empty = Sample::new(name, AllGather { ranks: parts.len() as u32, rank: None }, n, 0);
            parts.iter().fold(empty, |sample, k| sample.input(dtype, &format!("n,{k}"), Fill::Normal(1.0)))
        };
        vec![
            case("two ranks", 7, &[160, 160], DType::F32),
            case("decode, four ranks", 1, &[1024; 4], DType::F32),
            case("parts of odd sizes", 5, &[33, 1, 8], DType::F32),
            case("f16, three ranks", 3, &[21, 20, 20], DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
