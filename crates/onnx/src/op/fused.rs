//! `FusedConv` and `FusedGemm` of ONNX Runtime: the plain operators, and an activation of what they give. Their definitions:
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>.

use super::conv::{add_bias, conv_terms, convolve_as};
use super::matmul::{gemm_sum, gemm_terms};
use super::unary::logistic;
use crate::array::Array;
use crate::call::{Call, Outputs};
use crate::facts::{CallFacts, InputSizes, terms};
use crate::real::Real;
use tapml_graph::{Error, Result};

/// Applies the activation that the attribute `activation` names. Its parameters are two numbers, which have no default.
///
/// # Errors
/// If a parameter is missing, or the activation is not served.
fn activate<T: Real>(call: &Call<'_>, y: &mut Array<T>, parameters: [Option<f64>; 2]) -> Result<()> {
    let name = call.text_or("activation", "")?;
    // A parameter is read only by an activation that has it, so that others may leave it out.
    let parameter = |at: usize| {
        let value: Option<f64> = parameters[at];
        value
            .map(T::nearest)
            .ok_or_else(|| Error::invalid(format!("the activation `{name}` has no parameter {at}")))
    };
    match name {
        "" => {}
        // The comparison keeps a NaN, which `max` would drop.
        "Relu" => y.data.iter_mut().for_each(|v| *v = if *v < T::zero() { T::zero() } else { *v }),
        "Tanh" => y.data.iter_mut().for_each(|v| *v = v.tanh()),
        "Sigmoid" => y.data.iter_mut().for_each(|v| *v = logistic(*v)),
        "LeakyRelu" => {
            let alpha = parameter(0)?;
            y.data.iter_mut().for_each(|v| *v = if *v < T::zero() { alpha * *v } else { *v });
        }
        "HardSigmoid" => {
            let (alpha, beta) = (parameter(0)?, parameter(1)?);
            y.data.iter_mut().for_each(|v| *v = (alpha * *v + beta).max(T::zero()).min(T::one()));
        }
        "Clip" => {
            let (low, high) = (parameter(0)?, parameter(1)?);
            y.data.iter_mut().for_each(|v| *v = v.max(low).min(high));
        }
        other => {
            let other = other.chars().take(80).collect::<String>();
            return Err(Error::unsupported(format!(
                "the activation `{}` is not served",
                other.escape_debug()
            )));
        }
    }
    Ok(())
}

/// `FusedConv`: a tensor of the result's sizes is added before the activation.
///
/// # Errors
/// If that tensor has another shape: it does not broadcast.
pub fn conv<T: Real>(call: &Call<'_>) -> Outputs {
    let mut y = convolve_as(call, &call.array::<T>(0)?, &call.array::<T>(1)?)?;
    add_bias(&mut y, call.optional_array(2)?)?;
    if let Some(z) = call.optional_array::<T>(3)? {
        if z.shape != y.shape {
            return Err(Error::invalid(format!("input 3: {:?} is added to {:?}", z.shape, y.shape)));
        }
        y.data.iter_mut().zip(&z.data).for_each(|(y, &z)| *y += z);
    }
    let parameters = call.floats("activation_params")?.unwrap_or_default();
    activate(call, &mut y, [parameters.first().copied(), parameters.get(1).copied()])?;
    call.like_first(y)
}

/// Every element of a window in every channel of the group, the bias and what is added.
pub fn terms_of_conv(sizes: &InputSizes<'_>) -> CallFacts {
    terms(conv_terms(sizes).terms.saturating_add(usize::from(sizes.has(3))))
}

/// `FusedGemm`.
pub fn gemm<T: Real>(call: &Call<'_>) -> Outputs {
    let mut y = gemm_sum::<T>(call)?;
    // None of the activations that are served has a third parameter.
    call.ignore(&["activation_gamma"]);
    activate(call, &mut y, [call.float("activation_alpha")?, call.float("activation_beta")?])?;
    call.like_first(y)
}

/// As many as `Gemm` has.
pub fn terms_of_gemm(sizes: &InputSizes<'_>) -> CallFacts {
    gemm_terms(sizes)
}
