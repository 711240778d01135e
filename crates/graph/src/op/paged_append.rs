//! `paged_append`: writes the rows of a step to their places in a cache that many texts share.

use super::shape::{expect_dim, expect_indices, expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::pools::Pools;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = cache`, and then `y[slots[i], :] = new[i, :]`, for `cache: [r, k]`, `new: [n, k]`, `slots: u32[n]`: output `[r, k]`.
/// A row whose slot is `r` or more is written nowhere. Slots below `r` must differ from each other.
///
/// Row `slot` of the cache is row `slot % page` of page `slot / page`. Kwon et al., "Efficient Memory Management for Large
/// Language Model Serving with PagedAttention", 2023, section 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagedAppend {}

impl Operator for PagedAppend {
    const NAME: &'static str = "paged_append";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3])?;
        let (_, columns) = matrix("cache", &inputs[0])?;
        let (rows, new_columns) = matrix("new", &inputs[1])?;
        expect_dim("the second size of `new`", new_columns, columns)?;
        if inputs[0].dtype != inputs[1].dtype {
            return Err(Error::invalid(format!("`cache` is {}, `new` is {}", inputs[0].dtype, inputs[1].dtype)));
        }
        expect_dim("the length of `slots`", expect_indices("slots", &inputs[2])?, rows)?;
        Ok(vec![inputs[0].clone()])
    }

    fn overwrites(&self) -> bool {
        true
    }

    /// A row is a part: the operator knows no pages.
    fn pools(&self, _inputs: &[TensorType]) -> Option<Pools> {
        Some(Pools { inputs: vec![0], outputs: vec![0], part: 1, table: 2 })
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, rows: u32, k: usize, dtype, slots: Fill| {
            Sample::new(name, PagedAppend {}, n, 0)
                .input(dtype, &format!("{rows},{k}"), Fill::Normal(1.0))
                .input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
                .input(DType::U32, "n", slots)
        };
        vec![
            case("rows of three texts", 6, 48, 160, DType::F32, Fill::Distinct(48)),
            case("decode, the last slot", 1, 32, 33, DType::F32, Fill::Values("31")),
            case("rows that go nowhere", 4, 16, 40, DType::F32, Fill::Values("4294967295,0,16,15")),
            case("f16, backward", 5, 16, 24, DType::F16, Fill::Values("9,8,7,6,5")),
        ]
    }
}
