//! `clamp`: keeps numbers within bounds.

use super::{Operator, Sample, elementwise, sample};
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = min(max(x, min), max)`, element by element of `x: [n, k]`, without the bound that is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clamp {
    /// The smallest result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f32>,
    /// The largest result; not below `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f32>,
}

impl Operator for Clamp {
    const NAME: &'static str = "clamp";

    /// The type of `x`.
    ///
    /// # Errors
    /// If both bounds are absent, or `min` is above `max`.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        match (self.min, self.max) {
            (None, None) => Err(Error::invalid("one of `min` and `max` must be given")),
            (Some(min), Some(max)) if min > max => {
                Err(Error::invalid(format!("`min` {min} is above `max` {max}")))
            }
            _ => elementwise::infer(inputs),
        }
    }

    /// Both bounds, and each of them alone.
    fn samples() -> Vec<Sample> {
        let named = |min, max, suffix: &str| {
            let mut samples = sample::elementwise(&Clamp { min, max }.into(), 1);
            samples.iter_mut().for_each(|sample| sample.name.push_str(suffix));
            samples
        };
        [named(Some(-0.75), Some(1.5), ""), named(Some(0.1), None, ", below"), named(None, Some(-0.1), ", above")]
            .concat()
    }

    fn row_wise(&self) -> bool {
        true
    }
}
