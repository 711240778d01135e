//! `lerp`: linear interpolation between two matrices.

use super::shape::{expect_inputs, expect_same, expect_vector, matrix};
use super::{Fill, Operator, Sample};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = a + (b − a) · t`, element by element of `a, b: [n, k]`; `t` is `[n, k]` as they are, or a vector of `k` for every
/// row.
///
/// RWKV's mix of a token with the one before it: Peng et al. 2023, section 3.1, and 2024, section 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lerp {}

impl Operator for Lerp {
    const NAME: &'static str = "lerp";

    /// `a` and `b` of one type give that type; `t` may be a vector.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[3])?;
        let (_, columns) = matrix("a", &inputs[0])?;
        expect_same("a", &inputs[0], "b", &inputs[1])?;
        // A vector serves every row.
        match inputs[2].shape.len() {
            1 => expect_vector("t", &inputs[2], columns)?,
            _ => expect_same("a", &inputs[0], "t", &inputs[2])?,
        }
        Ok(vec![inputs[0].clone()])
    }

    /// A weight for all rows and one for each element, with outliers in `b`.
    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, k: usize, dtype, t, shape: &str| {
            Sample::new(name, Lerp {}, n, 0)
                .input(dtype, &format!("n,{k}"), Fill::Normal(1.0))
                .input(dtype, &format!("n,{k}"), Fill::Spiky(20.0))
                .input(t, shape, Fill::Around(0.5, 0.3))
        };
        let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
        vec![
            case("a weight for all rows", 7, 300, f32, bf16, "300"),
            case("a weight for all rows, decode", 1, 320, f32, f32, "320"),
            case("a weight for all rows, f16, odd size", 3, 41, f16, f16, "41"),
            case("a weight for each element", 5, 257, f32, f32, "n,257"),
            case("a weight for each element, f16, odd size", 3, 21, f16, f16, "n,21"),
        ]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
