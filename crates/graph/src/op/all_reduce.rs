//! `all_reduce`: adds up what the ranks of a sharded graph have computed.

use super::shape::{expect_inputs, expect_meeting, expect_ranks, expect_same, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, j] = x_0[i, j] + x_1[i, j] + …` for `x_r: [n, k]` of every rank `r`, added in the order of ranks: output `[n, k]`,
/// which every rank is given.
///
/// Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019,
/// section 3 (the operator `g`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllReduce {
    /// Ranks, of each of which there is an input; at least 2.
    pub ranks: u32,
    /// In the graph of one rank: which one that is. Then the inputs are its own part and the memory in which the ranks meet, one
    /// for each rank; see [`crate::Graph::rank_graph`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

impl Operator for AllReduce {
    const NAME: &'static str = "all_reduce";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_ranks(self.ranks)?;
        if let Some(rank) = self.rank {
            expect_meeting(inputs, self.ranks, rank)?;
            return Ok(vec![inputs[0].clone()]);
        }
        expect_inputs(inputs, &[self.ranks as usize])?;
        matrix("x_0", &inputs[0])?;
        for (rank, input) in inputs.iter().enumerate().skip(1) {
            expect_same("x_0", &inputs[0], &format!("x_{rank}"), input)?;
        }
        Ok(vec![inputs[0].clone()])
    }

    /// Two ranks and more, decode, sums that cancel, and 16 bits.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, ranks, n, k: u32, fill, dtype| {
            let empty = Sample::new(name, AllReduce { ranks, rank: None }, n, 0);
            (0..ranks).fold(empty, |sample, _| sample.input(dtype, &format!("n,{k}"), fill))
        };
        vec![
            case("two ranks", 2, 9, 320, Fill::Normal(1.0), DType::F32),
            case("decode, four ranks", 4, 1, 896, Fill::Normal(3.0), DType::F32),
            case("three ranks, odd size, large values", 3, 5, 33, Fill::Spiky(1e5), DType::F32),
            case("sixteen ranks", 16, 2, 65, Fill::Normal(1.0), DType::F32),
            case("f16, four ranks", 4, 3, 100, Fill::Normal(1.0), DType::F16),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
