//! `rows`: takes consecutive rows of a matrix.

use super::shape::{expect_inputs, matrix};
use super::{Fill, Operator, Sample};
use crate::dim::{Dim, Symbols};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, :] = x[first + i, :]` for `i < count`: `x: [m, k]` gives `y: [count, k]`.
///
/// Where `m` depends on the step, the rows must be there in the smallest one, of one token after none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// First row taken.
    pub first: u32,
    /// Rows taken.
    pub count: u32,
}

impl Operator for Rows {
    const NAME: &'static str = "rows";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        let (rows, columns) = matrix("x", &inputs[0])?;
        let end = u64::from(self.first) + u64::from(self.count);
        // One new token and none cached is the smallest run.
        if self.count == 0 || rows.eval(&Symbols::np(1, 0))? < end {
            let first = self.first;
            return Err(Error::invalid(format!("rows {first} to {end} (exclusive) must lie within {rows}")));
        }
        Ok(vec![TensorType::new(inputs[0].dtype, [Dim::from(u64::from(self.count)), columns.clone()])])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, rows: &str, k: usize, [first, count]: [u32; 2], dtype| {
            Sample::new(name, Rows { first, count }, n, 0).input(dtype, &format!("{rows},{k}"), Fill::Normal(1.0))
        };
        vec![
            case("some of a fixed number", 3, "9", 320, [2, 5], DType::F32),
            case("the first of a step", 5, "n", 33, [0, 1], DType::F32),
            case("the first of a step of one", 1, "n", 320, [0, 1], DType::F32),
            case("all", 1, "7", 41, [0, 7], DType::F32),
            case("f16, odd sizes", 2, "5", 21, [1, 3], DType::F16),
        ]
    }
}
