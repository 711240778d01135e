//! Operators of others: who evaluates them exactly, and how far their exact results move.
//!
//! What the oracle of TapML's own operators does by knowing them is done here by evaluations alone. An exact one is in `f64`;
//! disturbed ones tell how far it moves. Outputs of integers cannot move a little: they are told apart by what they round.

mod evaluation;
mod steps;

use crate::oracle::{Oracle, widen};
use crate::value::{Array, Value};
use evaluation::Evaluation;
use std::collections::BTreeMap;
use steps::{Steps, tensor_type};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Context, DType, Dim, Error, Op, Result, Symbols, Tensor, TensorType};
use tapml_onnx::CallFacts;
pub use tapml_onnx::Integers;

/// Terms of a sum where nothing is known of an operator but the sizes of its inputs: the longest of them.
fn longest(inputs: &[TensorType]) -> u64 {
    inputs.iter().flat_map(|ty| &ty.shape).filter_map(Dim::as_const).max().unwrap_or(0)
}

/// What is known of an operator on inputs of these types.
fn facts(op: &Foreign, inputs: &[TensorType]) -> Option<CallFacts> {
    tapml_onnx::facts(op, &op.place_inputs(inputs.iter().cloned()))
}

/// The number of terms of the longest sum of an operator of others, or of one that a fused operator stands for.
pub fn terms(op: &Op, inputs: &[TensorType]) -> u64 {
    match op {
        Op::Foreign(op) => facts(op, inputs).map_or_else(|| longest(inputs), |facts| facts.terms as u64),
        Op::Fused(fused) => {
            let body = fused.body();
            body.nodes().iter().map(|node| terms(&node.op, &body.input_types(node))).max().unwrap_or(0)
        }
        _ => longest(inputs),
    }
}

/// The outputs in the precision of the inputs: what the platform `cpu` computes.
///
/// # Errors
/// As [`tapml_onnx::evaluate`].
pub fn evaluate(op: &Foreign, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let outputs = tapml_onnx::evaluate(op, &op.place_inputs(inputs.iter().cloned()), false)?;
    Ok(outputs.into_iter().flatten().collect())
}

/// Who evaluates operators of others in `f64`: every float that it is given or gives is `f64`, whatever the graph declares.
pub trait Evaluator: Send + Sync {
    /// The outputs that are asked for, of the types that `op` declares. `constants` says of each input whether it is a weight.
    fn evaluate(&self, op: &Foreign, inputs: &[Tensor], constants: &[bool]) -> Result<Vec<Tensor>>;

    /// Whether it evaluates the operators of the standard that an operator of PyTorch is defined by.
    fn takes_definitions(&self) -> bool {
        false
    }
}

/// TapML's own evaluations.
pub struct OwnEvaluator;

impl Evaluator for OwnEvaluator {
    fn evaluate(&self, op: &Foreign, inputs: &[Tensor], _: &[bool]) -> Result<Vec<Tensor>> {
        let outputs = tapml_onnx::evaluate(op, &op.place_inputs(inputs.iter().cloned()), true)?;
        let outputs: Vec<Tensor> = outputs.into_iter().flatten().collect();
        let declared = op.outputs().iter().filter_map(DeclaredType::ty);
        for (ty, output) in declared.zip(&outputs) {
            let found = tensor_type(output);
            if found != *ty {
                let text = format!("the source gave {ty} where the operator gives {found} in f64");
                return Err(Error::invalid(text).context(op.kind().to_string()));
            }
        }
        Ok(outputs)
    }

    fn takes_definitions(&self) -> bool {
        true
    }
}

/// What a window function of the ONNX standard errs by for one rounding of each step: its terms are at most 1, and the angle, at
/// most 2π, is multiplied by at most a half.
const WINDOW: f64 = 1.0 + std::f64::consts::PI;

/// The operator with `f64` in the place of other floats among its declared outputs.
pub fn widen_outputs(op: &Foreign) -> Result<Foreign> {
    let declare = |declared: &DeclaredType| match declared {
        DeclaredType::As(ty) => DeclaredType::As(wide(ty)),
        other => other.clone(),
    };
    op.with_outputs(op.outputs().iter().map(declare).collect())
}

/// The tensor with `f64` in the place of another float.
pub fn widened_tensor(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dtype().is_float() {
        Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &tensor.to_f64())
    } else {
        Ok(tensor.clone())
    }
}

/// The same type with `f64` in the place of another float.
fn wide(ty: &TensorType) -> TensorType {
    TensorType { dtype: if ty.dtype.is_float() { DType::F64 } else { ty.dtype }, shape: ty.shape.clone() }
}

/// How the inputs of a call are disturbed.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    /// Relative amplitude for outputs of floats.
    pub amplitude: f64,
    /// Relative amplitude for outputs of integers: all that a platform may err before it rounds to them.
    pub reach: f64,
    /// Disturbed evaluations.
    pub copies: usize,
    /// What decides the random numbers.
    pub seed: u64,
}

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

/// The outputs of an operator of others on numbers of one type; see [`crate::eval`]. Fails on inputs that are integers.
pub(crate) fn eval<T: crate::Real>(op: &Foreign, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
    let inputs: Vec<Tensor> = inputs.iter().map(|value| value.to_tensor(T::DTYPE)).collect::<Result<_>>()?;
    let given = op.place_inputs(inputs);
    let outputs = tapml_onnx::evaluate(op, &given, T::DTYPE == DType::F64)?;
    outputs.iter().flatten().map(Value::from_tensor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
