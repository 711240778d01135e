//! `take_rows`: rows of a matrix by their numbers.

use super::shape::{expect_indices, expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, :] = x[numbers[i], :]` for `x: [m, k]`, `numbers: u32[s]`: output `[s, k]`. A number beyond `m` is refused.
///
/// Of a step that holds rows of several texts, it takes those whose logits are wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeRows {}

impl Operator for TakeRows {
    const NAME: &'static str = "take_rows";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let (_, columns) = matrix("x", &inputs[0])?;
        let count = expect_indices("numbers", &inputs[1])?;
        Ok(vec![TensorType::new(inputs[0].dtype, [count.clone(), columns.clone()])])
    }

    fn size_from(&self) -> usize {
        1
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n: u32, k: usize, count: &str, dtype| {
            Sample::new(name, TakeRows {}, u64::from(n), 0)
                .input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
                .input(DType::U32, count, Fill::Below(n))
        };
        vec![
            Sample::new("the first row", TakeRows {}, 9, 0)
                .input(DType::F32, "n,320", Fill::Normal(1.0))
                .input(DType::U32, "1", Fill::Values("0")),
            case("some of a step", 9, 320, "4", DType::F32),
            case("the only one", 1, 33, "1", DType::F32),
            case("a row twice, f16", 3, 40, "7", DType::F16),
            case("one for each", 5, 21, "n", DType::F32),
        ]
    }
}
