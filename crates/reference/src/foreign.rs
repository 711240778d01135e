//! Operators of others: who evaluates them exactly, and how far their exact results move.
//!
//! What the oracle of TapML's own operators does by knowing them is done here by evaluations alone. An exact one is in `f64`;
//! disturbed ones tell how far it moves. Outputs of integers cannot move a little: they are told apart by what they round.

mod evaluation;
mod evaluator;
mod steps;
mod values;

use crate::deviation::widen;
use crate::oracle::Oracle;
use crate::value::Array;
pub use evaluation::Disturbance;
use evaluation::Evaluation;
use evaluator::tensor_type;
pub use evaluator::{Evaluator, OwnEvaluator, evaluate, terms, widen_outputs, widened_tensor};
use std::collections::BTreeMap;
use steps::Steps;
use tapml_graph::{Context, DType, Error, Op, Result, Symbols, Tensor, TensorType};
pub use tapml_onnx::Integers;
pub(crate) use values::eval;

/// What a window function of the ONNX standard errs by for one rounding of each step: its terms are at most 1, and the angle, at
/// most 2π, is multiplied by at most a half.
const WINDOW: f64 = 1.0 + std::f64::consts::PI;

/// What an output of integers may be besides its exact integers.
#[derive(Clone, Debug, PartialEq)]
pub enum OpenIntegers {
    /// Real numbers are rounded, which are known.
    Rounded {
        /// The real numbers.
        integers: Integers,
        /// The unit roundoff of the coarsest float among the inputs, in which the operator may be computed.
        roundoff: f64,
    },
    /// What disturbed evaluations gave, at elements where one of them differs.
    Reached(BTreeMap<usize, Vec<f64>>),
}

/// Exact results of a call of an operator of others.
#[derive(Clone, Debug)]
pub struct ForeignOracle {
    /// The outputs and their sensitivity.
    pub found: Oracle,
    /// What each output of integers leaves open.
    pub integers: Vec<Option<OpenIntegers>>,
}

/// As [`crate::oracle`], for an operator of others or a fused one that stands for such. Inputs that are weights are disturbed
/// only where all are.
///
/// # Errors
/// Of kind `Unsupported` where the evaluator does not evaluate a node, or a fused operator gives integers.
pub fn oracle(
    evaluator: &dyn Evaluator,
    op: &Op,
    inputs: &[Tensor],
    is_weight: &[bool],
    disturbance: Disturbance,
) -> Result<ForeignOracle> {
    let Disturbance { amplitude, reach, copies, seed } = disturbance;
    let types: Vec<TensorType> = inputs.iter().map(tensor_type).collect();
    let floats = |tensor: &&Tensor| tensor.dtype().is_float();
    let roundoff = inputs.iter().filter(floats).map(|t| t.dtype().unit_roundoff()).fold(0.0, f64::max);
    // An evaluator that knows PyTorch's operators by itself is given them as they are.
    let definition = match op {
        Op::Foreign(op) if evaluator.takes_definitions() => Steps::of_definition(op, &types)?,
        _ => None,
    };
    let steps = definition.map_or_else(|| Steps::from_op(op, inputs.len()), Ok)?;
    let exact: Vec<Tensor> = inputs.iter().map(widened_tensor).collect::<Result<_>>()?;
    let evaluation = Evaluation { evaluator, steps: &steps, inputs: &exact, is_weight, seed };
    let values = evaluation.values(&exact)?;
    let outputs = evaluation.outputs(&values)?;
    // Integers alone are computed exactly.
    let still = roundoff == 0.0 || steps.are_exact(&types);
    let is_float = |at: usize| match steps.types.get(at) {
        Some(Some(ty)) => ty.dtype.is_float(),
        _ => true,
    };
    let any_floats = steps.types.iter().flatten().any(|ty| ty.dtype.is_float());
    // What cannot move is not evaluated again.
    let copies_of_floats = if still || !any_floats { 0 } else { copies };
    let moved = evaluation.copies(&outputs, amplitude, copies_of_floats)?;
    let mut deviation: Vec<Vec<f64>> = outputs.iter().map(|exact| vec![0.0; exact.len()]).collect();
    for (at, (largest, exact)) in deviation.iter_mut().zip(&outputs).enumerate() {
        moved
            .iter()
            .filter(|_| is_float(at))
            .for_each(|copy| widen(largest, exact.values(), copy[at].values()));
    }
    let inner = if still {
        Vec::new()
    } else {
        evaluation.arithmetic(&values, inputs, disturbance, &mut deviation)?
    };
    // They have no float as an input that could be disturbed.
    if matches!(op, Op::Foreign(op) if op.domain() == "onnx" && op.name().ends_with("Window")) {
        deviation.iter_mut().flatten().for_each(|d| *d = amplitude * WINDOW);
    }
    let mut integers: Vec<Option<OpenIntegers>> = vec![None; outputs.len()];
    if !(0..outputs.len()).all(is_float) {
        let Op::Foreign(op) = op else {
            return Err(Error::unsupported(format!("`{}` gives integers", op.name())));
        };
        let op = &widen_outputs(op)?;
        let rounded = tapml_onnx::integers(op, &op.place_inputs(exact.iter().cloned()))?;
        let asked = op.outputs().iter().enumerate().filter(|(_, output)| output.is_asked());
        let rounded: Vec<Option<Integers>> =
            asked.map(|(place, _)| rounded.get(place).cloned().flatten()).collect();
        let known = |at: usize| is_float(at) || rounded.get(at).is_some_and(Option::is_some);
        if !still && !(0..outputs.len()).all(known) {
            let amplitude = reach * (roundoff / DType::F32.unit_roundoff()).max(1.0);
            let reached = evaluation.copies(&outputs, amplitude, copies)?;
            for at in (0..outputs.len()).filter(|&at| !known(at)) {
                integers[at] = Some(OpenIntegers::Reached(differing_values(&outputs[at], at, &reached)));
            }
        }
        for (open, rounded) in integers.iter_mut().zip(rounded) {
            let rounded = rounded.map(|integers| OpenIntegers::Rounded { integers, roundoff });
            *open = rounded.or_else(|| open.take());
        }
    }
    let shaped = |all: Vec<Vec<f64>>| -> Result<Vec<Array<f64>>> {
        let pairs = all.into_iter().zip(&outputs);
        pairs.map(|(values, exact)| Array::new(exact.shape().to_vec(), values)).collect()
    };
    let (deviation, inner) = (shaped(deviation)?, shaped(inner)?);
    Ok(ForeignOracle { found: Oracle { exact: outputs, deviation, inner }, integers })
}

/// The values of an output that copies gave and the exact evaluation did not, each once.
fn differing_values(exact: &Array<f64>, at: usize, copies: &[Vec<Array<f64>>]) -> BTreeMap<usize, Vec<f64>> {
    let mut found: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for copy in copies {
        let pairs = exact.values().iter().zip(copy[at].values()).enumerate();
        for (i, (_, &value)) in pairs.filter(|(_, (exact, value))| exact != value) {
            let known = found.entry(i).or_default();
            if !known.contains(&value) {
                known.push(value);
            }
        }
    }
    found
}

/// Runs a node of any kind in `f32`: one of TapML's own operators by the reference, any other by its evaluation, what a fused
/// operator stands for one after the other.
///
/// # Errors
/// If the operator has no evaluation, or the inputs do not fit it.
pub fn run_any(op: &Op, symbols: &Symbols, inputs: &[Tensor], outputs: &[DType]) -> Result<Vec<Tensor>> {
    if !op.is_foreign() {
        return crate::run_node(op, symbols, inputs, outputs);
    }
    let steps = Steps::from_op(op, inputs.len())?;
    let values = steps.run(inputs).context(|| op.name().to_string())?;
    Ok(steps.outputs.iter().map(|&at| values[at].clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapml_graph::op::{DeclaredType, Foreign};

    #[test]
    fn equal_terms_are_rounded_alike() {
        const TERMS: usize = 9000;
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape.iter().copied());
        let op = |name: &str, shape: &[usize]| {
            Foreign::new(name, Default::default(), vec![true], vec![DeclaredType::As(ty(shape))]).unwrap()
        };
        let x = Tensor::from_f32(vec![1, 1, 90, 100], vec![1.375_327_2; TERMS]).unwrap();
        let op = op("onnx.GlobalAveragePool@1", &[1, 1, 1, 1]);
        let reach = 6e-8 * 30.0;
        let disturbance = Disturbance { amplitude: 1e-6, reach, copies: 2, seed: 1 };
        let found =
            oracle(&OwnEvaluator, &op.clone().into(), std::slice::from_ref(&x), &[false], disturbance)
                .unwrap()
                .found;
        let serial = evaluate(&op, &[x]).unwrap()[0].to_f64()[0];
        let error = (serial - found.exact[0].values()[0]).abs();
        let allowed = found.deviation[0].values()[0] / 1e-6 * reach;
        assert!(error > 20.0 * 6e-8 && allowed >= 2.0 * error, "{error:e} {allowed:e}");
    }

    #[test]
    fn a_bias_that_cancels_leaves_the_rounding_of_what_it_cancels() {
        let single = |value: f32| Tensor::from_f32(vec![1], vec![value]).unwrap();
        let x = Tensor::from_f32(vec![1, 1], vec![0.001]).unwrap();
        let (scale, bias, mean, variance) = (single(2.0), single(100.0), single(50.0), single(1.0));
        let ty = TensorType::new(DType::F32, [1usize, 1]);
        let declared = vec![DeclaredType::As(ty)];
        let op =
            Foreign::new("onnx.BatchNormalization@15", Default::default(), vec![true; 5], declared).unwrap();
        let weights = [false, true, true, true, true];
        let disturbance = Disturbance { amplitude: 1e-6, reach: 1e-6, copies: 4, seed: 1 };
        let inputs = [x, scale, bias, mean, variance];
        let found = oracle(&OwnEvaluator, &op.into(), &inputs, &weights, disturbance).unwrap().found;
        // 2 · 0.001 - 100 + 100: the sum reaches 100 on its way to 0.002.
        assert!((found.exact[0].values()[0] - 0.002).abs() < 1e-3, "{:?}", found.exact);
        let reached = found.deviation[0].values()[0] / 1e-6;
        assert!((57.0..59.0).contains(&reached), "200 / (2 · √3), found {reached}");
    }
}
