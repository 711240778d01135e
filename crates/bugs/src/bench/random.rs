//! Bottom-up tests for comparison: the same operators on inputs drawn from a normal distribution, as unit tests do.

use super::op_case::replay;
use tapml_exec::{Call, CpuPlatform};
use tapml_graph::{Result, Tensor};

/// The calls with every float input, weights among them, replaced by normal numbers of its shape, and what the CPU
/// reference computes on them.
pub fn calls(calls: &[Call]) -> Result<(Vec<Call>, Vec<Vec<Tensor>>)> {
    let changed: Vec<Call> =
        calls.iter().enumerate().map(|(i, call)| normal(call, i as u64)).collect::<Result<_>>()?;
    let outputs = replay(&mut CpuPlatform::new(), &changed)?;
    Ok((changed, outputs.into_iter().collect::<Result<_>>()?))
}

/// One call with drawn inputs; indices stay, since others might point nowhere.
fn normal(call: &Call, seed: u64) -> Result<Call> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut draw = || {
        // The polar form of Box and Muller.
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.f64()).cos()
    };
    let input = |tensor: &Tensor| {
        if tensor.dtype().is_float() {
            let values: Vec<f64> = (0..tensor.len()).map(|_| draw()).collect();
            Tensor::from_f64(tensor.dtype(), tensor.shape().to_vec(), &values)
        } else {
            Ok(tensor.clone())
        }
    };
    let inputs: Vec<Tensor> = call.inputs.iter().map(input).collect::<Result<_>>()?;
    // Drawn weights are no weights of the model, which platforms may have prepared.
    let weights = vec![None; inputs.len()];
    Ok(Call { inputs, weights, ..call.clone() })
}
