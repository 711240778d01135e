//! `add`: element-wise sum.

use super::shape::expect_inputs;
use super::{Broadcast, Neutral, Operator, Sample, broadcast};
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = a + b`, element by element; `b` has the type of `a`, or stretches to `a: [n, k]` as a vector of `k` for every
/// row or as `[n, 1]` for every column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {}

impl Operator for Add {
    const NAME: &'static str = "add";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        Broadcast::from_types(&inputs[0], &inputs[1])?;
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        broadcast::samples(&Add {}.into())
    }

    fn neutral(&self) -> &'static [&'static [(usize, Neutral)]] {
        &[&[(1, Neutral::Zeros)], &[(0, Neutral::Zeros)]]
    }

    fn row_wise(&self) -> bool {
        true
    }
}
