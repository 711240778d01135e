//! `rope_angles`: cosines and sines of the rotary embedding for the positions of this step.

use super::shape::expect_inputs;
use super::{Operator, Sample};
use crate::dim::Symbol;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i, j] = scale·cos((p+i)·f_j)` and `y[i, d+j] = scale·sin((p+i)·f_j)` for `j < d`, `d = inv_freq.len()`;
/// no inputs, output `f32[n, 2d]`.
///
/// Su et al., "RoFormer", 2021, section 3.2.2. Every way of scaling (linear, llama3, YaRN, …) is a choice of `inv_freq`
/// and `scale`, made when the model is imported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeAngles {
    /// Angle per position of each pair, radians.
    pub inv_freq: Vec<f32>,
    /// Factor on cosines and sines; 1 unless the scaling method asks for another.
    pub scale: f32,
}

impl Operator for RopeAngles {
    const NAME: &'static str = "rope_angles";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[0])?;
        if self.inv_freq.is_empty() || !self.inv_freq.iter().all(|f| f.is_finite() && f.abs() <= 1.0) {
            return Err(Error::invalid("`inv_freq` must hold finite values of at most 1 radian"));
        }
        Ok(vec![TensorType::new(DType::F32, [Symbol::N.into(), crate::Dim::from(2 * self.inv_freq.len())])])
    }

    fn samples() -> Vec<Sample> {
        let case = |name: &str, n, p, d: usize, base: f32, scale| {
            let inv_freq = (0..d).map(|j| base.powf(-(j as f32) / d as f32)).collect();
            Sample::new(name, RopeAngles { inv_freq, scale }, n, p)
        };
        vec![
            case("prefill", 9, 0, 20, 10000.0, 1.0),
            case("decode", 1, 500, 20, 10000.0, 1.0),
            case("far position", 2, 131_070, 16, 500_000.0, 1.0),
            case("attention factor, odd pairs", 3, 77, 5, 10000.0, 1.25),
        ]
    }
}
