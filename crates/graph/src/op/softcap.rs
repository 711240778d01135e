//! `softcap`: keeps numbers smoothly within a bound.

use super::{Operator, Sample, Saturation, elementwise, sample};
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = cap · tanh(x / cap)`, element by element of `x: [n, k]`. Gemma-2 report 2024, section 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softcap {
    /// The bound; above 0.
    pub cap: f32,
}

impl Operator for Softcap {
    const NAME: &'static str = "softcap";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        // A NaN is refused as well.
        if self.cap.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            return Err(Error::invalid(format!("`cap` must be above 0, found {}", self.cap)));
        }
        elementwise::infer(inputs)
    }

    fn samples() -> Vec<Sample> {
        sample::elementwise(&Softcap { cap: 5.0 }.into(), 1)
    }

    fn row_wise(&self) -> bool {
        true
    }

    fn saturation(&self) -> Option<Saturation> {
        Saturation::ELEMENTWISE
    }
}
