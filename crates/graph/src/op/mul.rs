//! `mul`: element-wise product.

use super::shape::{expect_inputs, expect_same};
use super::{Operator, Sample, sample::elementwise};
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = a · b` for `a`, `b` of one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mul {}

impl Operator for Mul {
    const NAME: &'static str = "mul";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[2])?;
        expect_same("a", &inputs[0], "b", &inputs[1])?;
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        elementwise(&Mul {}.into(), 2)
    }

    fn row_wise(&self) -> bool {
        true
    }
}
