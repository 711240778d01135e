//! `scale`: product with a number.

use super::{Operator, Sample, elementwise, sample};
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = factor · x`, element by element of `x: [n, k]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The number.
    pub factor: f32,
}

impl Operator for Scale {
    const NAME: &'static str = "scale";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        elementwise::infer(inputs)
    }

    fn samples() -> Vec<Sample> {
        sample::elementwise(&Scale { factor: -0.288_675_13 }.into(), 1)
    }

    fn row_wise(&self) -> bool {
        true
    }
}
