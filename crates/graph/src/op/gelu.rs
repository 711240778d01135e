//! `gelu`: the Gaussian error linear unit.

use super::shape::{expect_inputs, matrix};
use super::{Operator, Sample, sample::elementwise};
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = x · Φ(x) = x/2 · (1 + erf(x/√2))`, or with [`GeluForm::Tanh`]
/// `y = x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`, element by element of `x: [n, k]`.
///
/// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gelu {
    /// Which of the two forms.
    #[serde(default)]
    pub approximate: GeluForm,
}

/// The forms of [`Gelu`]: models are trained with one and differ visibly with the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GeluForm {
    /// By the error function.
    #[default]
    None,
    /// By the hyperbolic tangent.
    Tanh,
}

impl Operator for Gelu {
    const NAME: &'static str = "gelu";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_inputs(inputs, &[1])?;
        matrix("x", &inputs[0])?;
        Ok(vec![inputs[0].clone()])
    }

    fn samples() -> Vec<Sample> {
        let exact = elementwise(&Gelu { approximate: GeluForm::None }.into(), 1);
        let mut tanh = elementwise(&Gelu { approximate: GeluForm::Tanh }.into(), 1);
        tanh.iter_mut().for_each(|sample| sample.name.push_str(", tanh"));
        exact.into_iter().chain(tanh).collect()
    }

    fn row_wise(&self) -> bool {
        true
    }
}
