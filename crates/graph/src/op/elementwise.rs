//! What operators share that compute each element of a matrix from the same element of another.

use super::shape::{expect_inputs, matrix};
use crate::error::Result;
use crate::graph::TensorType;

/// The output of an operator that maps each element of its only input: a matrix of the same type.
pub fn infer(inputs: &[TensorType]) -> Result<Vec<TensorType>> {
    expect_inputs(inputs, &[1])?;
    matrix("x", &inputs[0])?;
    Ok(vec![inputs[0].clone()])
}

/// What an operator that saturates declares.
pub fn saturates() -> Option<super::Saturation> {
    super::Saturation::ELEMENTWISE
}

/// An operator that maps each element and has no attributes: its docs are the formula, then type and name, and `saturates`
/// if it does.
macro_rules! elementwise {
    ($(#[doc = $doc:literal])+ $ty:ident, $name:literal $(, $saturates:ident)?) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $ty {}

        impl crate::op::Operator for $ty {
            const NAME: &'static str = $name;

            fn infer(&self, inputs: &[crate::TensorType]) -> crate::Result<Vec<crate::TensorType>> {
                crate::op::elementwise::infer(inputs)
            }

            fn samples() -> Vec<crate::op::Sample> {
                crate::op::sample::elementwise(&$ty {}.into(), 1)
            }

            fn row_wise(&self) -> bool {
                true
            }

            $(fn saturation(&self) -> Option<crate::op::Saturation> {
                crate::op::elementwise::$saturates()
            })?
        }
    };
}

pub(super) use elementwise;
