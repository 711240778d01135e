//! `append`: adds this step's rows behind a cache.

use super::shape::{expect_dim, expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = [cache; new]` along rows for `cache: [p, k]`, `new: [n, k]`: output `[n+p, k]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Append {}

impl Operator for Append {
    const NAME: &'static str = "append";

    /// `cache: [p, k]` and `new: [n, k]` of one dtype give `[n+p, k]`.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        let (cached, columns) = matrix("cache", &inputs[0])?;
        let (rows, new_columns) = matrix("new", &inputs[1])?;
        expect_dim("the second size of `new`", new_columns, columns)?;
        if inputs[0].dtype != inputs[1].dtype {
            return Err(Error::invalid(format!("`cache` is {}, `new` is {}", inputs[0].dtype, inputs[1].dtype)));
        }
        let sum = cached.checked_add(rows).ok_or_else(|| Error::invalid("the row count overflows"))?;
        Ok(vec![TensorType::new(inputs[0].dtype, [sum, columns.clone()])])
    }

    /// An empty cache, decode, odd widths, and a dtype of 16 bits.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, p, k: usize, dtype| {
            Sample::new(name, Append {}, n, p)
                .input(dtype, &format!("p,{k}"), Fill::Normal(1.0))
                .input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
        };
        vec![
            // The first step of a text.
            case("empty cache", 7, 0, 160, DType::F32),
            case("decode", 1, 9, 160, DType::F32),
            case("odd width", 2, 3, 33, DType::F32),
            case("f16", 1, 5, 40, DType::F16),
        ]
    }

    /// A runtime may write the new rows into the buffer of the cache.
    fn appends(&self) -> bool {
        true
    }
}
