//! `gelu`: the Gaussian error linear unit.

use super::{Operator, Sample, Saturation, elementwise, sample};
use crate::error::Result;
use crate::graph::TensorType;
use serde::{Deserialize, Serialize};

/// `y = x · Φ(x) = x/2 · (1 + erf(x/√2))`, or with [`GeluForm::Tanh`]
/// `y = x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`, or with [`GeluForm::Quick`] `y = x / (1 + exp(−1.702·x))`, element
/// by element of `x: [n, k]`.
///
/// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gelu {
    /// Which of the forms.
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
    /// By the logistic function.
    Quick,
}

impl Operator for Gelu {
    const NAME: &'static str = "gelu";

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        elementwise::infer(inputs)
    }

    /// The same inputs for each form.
    fn samples() -> Vec<Sample> {
        let named = |approximate, suffix: &str| {
            let mut samples = sample::elementwise(&Gelu { approximate }.into(), 1);
            samples.iter_mut().for_each(|sample| sample.name.push_str(suffix));
            samples
        };
        [named(GeluForm::None, ""), named(GeluForm::Tanh, ", tanh"), named(GeluForm::Quick, ", quick")].concat()
    }

    fn row_wise(&self) -> bool {
        true
    }

    /// All forms are made of exponentials.
    fn saturation(&self) -> Option<Saturation> {
        Saturation::ELEMENTWISE
    }
}
