//! `silu`: the sigmoid linear unit.

use super::shape::{expect_inputs, matrix};
use super::{Operator, Sample, sample::elementwise};
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = x / (1 + exp(−x))`. Elfwing, Uchibe, Doya 2018, section 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silu {}

impl Operator for Silu {
    const NAME: &'static str = "silu";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        matrix("x", &inputs[0])?;
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        elementwise(&Silu {}.into(), 1)
    }

    fn row_wise(&self) -> bool {
        true
    }
}
