//! Operators of others: who evaluates them exactly, and how far their exact results move.

use crate::oracle::{Oracle, widen};
use crate::random::Uniform;
use crate::value::Array;
use rayon::prelude::*;
use std::collections::BTreeMap;
use tapml_graph::op::{Declared, Foreign};
use tapml_graph::{Context, DType, Dim, Error, Op, Result, Symbols, Tensor, TensorType};
use tapml_onnx::Facts;
pub use tapml_onnx::Integers;

/// Terms of a sum where nothing is known of an operator but the sizes of its inputs: the longest of them.
fn longest(inputs: &[TensorType]) -> u64 {
    inputs.iter().flat_map(|ty| &ty.shape).filter_map(Dim::as_const).max().unwrap_or(0)
}

/// What is known of an operator on inputs of these types.
fn facts(op: &Foreign, inputs: &[TensorType]) -> Option<Facts> {
    tapml_onnx::facts(op, &op.placed(inputs.iter().cloned()))
}

/// The number of terms of the longest sum of an operator.
pub fn terms(op: &Foreign, inputs: &[TensorType]) -> u64 {
    facts(op, inputs).map_or_else(|| longest(inputs), |facts| facts.terms as u64)
}

/// The outputs in the precision of the inputs: what the platform `cpu` computes.
pub fn evaluate(op: &Foreign, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let outputs = tapml_onnx::evaluate(op, &op.placed(inputs.iter().cloned()), false)?;
    Ok(outputs.into_iter().flatten().collect())
}

/// Who evaluates operators of others in `f64`: every float that it is given or gives is `f64`, whatever the graph declares.
pub trait Evaluator: Send + Sync {
    /// The outputs that are asked for, of the types that `op` declares. `constants` says of each input whether it is a weight.
    fn evaluate(&self, op: &Foreign, inputs: &[Tensor], constants: &[bool]) -> Result<Vec<Tensor>>;
}

/// TapML's own evaluations.
pub struct OwnEvaluator;

impl Evaluator for OwnEvaluator {
    fn evaluate(&self, op: &Foreign, inputs: &[Tensor], _: &[bool]) -> Result<Vec<Tensor>> {
        let outputs = tapml_onnx::evaluate(op, &op.placed(inputs.iter().cloned()), true)?;
        let outputs: Vec<Tensor> = outputs.into_iter().flatten().collect();
        let declared = op.outputs().iter().filter_map(Declared::ty);
        for (ty, output) in declared.zip(&outputs) {
            let found = TensorType::new(output.dtype(), output.shape().iter().copied());
            if found != *ty {
                let text = format!("the source gave {ty} where the operator gives {found} in f64");
                return Err(Error::invalid(text).context(op.kind().to_string()));
            }
        }
        Ok(outputs)
    }
}

/// Operators of the ONNX standard whose outputs are sums of products of their inputs, or of their inputs.
const SUMS: [&str; 10] = [
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "Gemm",
    "GlobalAveragePool",
    "MatMul",
    "ReduceMean",
    "ReduceSum",
    "Sum",
];

/// Operators of the ONNX standard that add up many inputs, often equal ones: a plain area of an image, or the same weights; or in
/// every turn of a loop.
const LONG_SUMS: [&str; 8] = [
    "AveragePool",
    "GlobalAveragePool",
    "Loop",
    "NegativeLogLikelihoodLoss",
    "ReduceMean",
    "ReduceSum",
    "Scan",
    "SoftmaxCrossEntropyLoss",
];

/// How much farther than a sum of one term after the other a right one may be off.
const BESIDE_SERIAL: f64 = 2.0;

/// How far the elements of an output must be able to move so that the error of `serial`, the same call in the precision of its
/// inputs, is allowed [`BESIDE_SERIAL`] times. Equal terms are rounded alike, as long as the sum has the same exponent: such errors
/// add up, while the roundings of a verdict's sums are taken to cancel in part. What one element shows holds for all of an output,
/// in proportion to `scale`.
fn alike(exact: &[f64], serial: &[f64], scale: &[f64], unit: f64) -> Vec<f64> {
    let share = |((exact, serial), scale): ((&f64, &f64), &f64)| (serial - exact).abs() / scale;
    let shares = exact.iter().zip(serial).zip(scale).map(share).filter(|share| share.is_finite());
    let worst = shares.fold(0.0, f64::max);
    scale.iter().map(|scale| BESIDE_SERIAL * worst * scale * unit).collect()
}

/// What a window function of the ONNX standard errs by for one rounding of each step: its terms are at most 1, and the angle, at
/// most 2π, is multiplied by at most a half.
const WINDOW: f64 = 1.0 + std::f64::consts::PI;

/// What the partial sums of each output element reach, as a root mean square, in the least fortunate order of its terms: all of
/// one sign first. They grow to `(S + |y|) / 2` then, `S` the sum of the terms' magnitudes and `y` the result, evenly on the
/// average, so that their RMS is that over `√3`. A rounding errs in proportion to the partial sum that it rounds, whatever the
/// inputs' last digits do to the result.
fn partial_sums(exact: &[Array<f64>], magnitudes: &[Array<f64>]) -> Vec<Vec<f64>> {
    let one = |(exact, sums): (&Array<f64>, &Array<f64>)| {
        let pairs = exact.values().iter().zip(sums.values());
        pairs.map(|(y, s)| (s.abs() + y.abs()) / (2.0 * 3f64.sqrt())).collect()
    };
    exact.iter().zip(magnitudes).map(one).collect()
}

/// Input `at` of an operator of [`SUMS`] with the signs that make all terms of its sums positive.
fn same_sign(op: &Foreign, at: usize, tensor: &Tensor) -> Result<Tensor> {
    // Of `(x - mean) · scale / √(var + ε) + bias`, the mean and the variance.
    const SUBTRACTED: usize = 3;
    const UNDER_ROOT: usize = 4;
    let sign = match op.name() {
        "BatchNormalization" if at == SUBTRACTED => -1.0,
        "BatchNormalization" if at == UNDER_ROOT => return Ok(tensor.clone()),
        _ => 1.0,
    };
    if !tensor.dtype().is_float() {
        return Ok(tensor.clone());
    }
    let values: Vec<f64> = tensor.to_f64().iter().map(|v| sign * v.abs()).collect();
    Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &values)
}

/// The operator with `f64` in the place of other floats among its declared outputs.
pub fn widened(op: &Foreign) -> Result<Foreign> {
    let declare = |declared: &Declared| match declared {
        Declared::As(ty) => Declared::As(wide(ty)),
        other => other.clone(),
    };
    op.with_outputs(op.outputs().iter().map(declare).collect())
}

/// The tensor with `f64` in the place of another float.
pub fn widened_tensor(tensor: &Tensor) -> Result<Tensor> {
    match tensor.dtype().is_float() {
        true => Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &tensor.to_f64()),
        false => Ok(tensor.clone()),
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

/// A call in `f64`, evaluated with its inputs as they are, or disturbed.
struct Evaluation<'a> {
    evaluator: &'a dyn Evaluator,
    op: &'a Foreign,
    inputs: &'a [Tensor],
    is_weight: &'a [bool],
    seed: u64,
}

impl Evaluation<'_> {
    fn of(&self, inputs: &[Tensor]) -> Result<Vec<Array<f64>>> {
        let outputs = self.evaluator.evaluate(self.op, inputs, self.is_weight)?;
        outputs.iter().map(|t| Array::new(t.shape().to_vec(), t.to_f64())).collect()
    }

    /// One copy of the inputs, each float times `1 + amplitude · U(−1, 1)`. Weights are disturbed only where all floats are.
    fn disturbed(&self, amplitude: f64, copy: usize) -> Result<Vec<Tensor>> {
        let floats = |tensor: &Tensor| tensor.dtype().is_float();
        let only_weights =
            self.inputs.iter().zip(self.is_weight).all(|(tensor, weight)| *weight || !floats(tensor));
        let one = |(at, tensor): (usize, &Tensor)| {
            // The numbers of `Range` decide the size of its output, and not their last digits.
            if !floats(tensor) || self.op.name() == "Range" || (self.is_weight[at] && !only_weights) {
                return Ok(tensor.clone());
            }
            let stream = Uniform::new(self.seed, &[at as u64, copy as u64]);
            let mut values = tensor.to_f64();
            let mut rest = values.iter_mut();
            for piece in stream.pieces(0, tensor.len()) {
                for (&noise, value) in piece.iter().zip(&mut rest) {
                    *value *= 1.0 + amplitude * noise;
                }
            }
            Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &values)
        };
        self.inputs.iter().enumerate().map(one).collect()
    }

    /// The outputs of disturbed copies, each of the shapes that the exact ones have.
    fn copies(&self, exact: &[Array<f64>], amplitude: f64, copies: usize) -> Result<Vec<Vec<Array<f64>>>> {
        let copy = |copy: usize| {
            let outputs = self.of(&self.disturbed(amplitude, copy)?)?;
            match outputs.iter().map(Array::shape).eq(exact.iter().map(Array::shape)) {
                true => Ok(outputs),
                false => Err(Error::unsupported(
                    "the sizes of its outputs depend on the last digits of its inputs",
                )),
            }
        };
        (0..copies).into_par_iter().map(copy).collect()
    }
}

/// As [`crate::oracle`], for an operator of others. Inputs that are weights are disturbed only where all are.
pub fn oracle(
    evaluator: &dyn Evaluator,
    op: &Foreign,
    inputs: &[Tensor],
    is_weight: &[bool],
    disturbance: Disturbance,
) -> Result<ForeignOracle> {
    let Disturbance { amplitude, reach, copies, seed } = disturbance;
    let types: Vec<TensorType> =
        inputs.iter().map(|t| TensorType::new(t.dtype(), t.shape().iter().copied())).collect();
    let floats = |tensor: &&Tensor| tensor.dtype().is_float();
    let roundoff = inputs.iter().filter(floats).map(|t| t.dtype().unit_roundoff()).fold(0.0, f64::max);
    let (given, op) = (op, &widened(op)?);
    let exact: Vec<Tensor> = inputs.iter().map(widened_tensor).collect::<Result<_>>()?;
    let evaluation = Evaluation { evaluator, op, inputs: &exact, is_weight, seed };
    let outputs = evaluation.of(&exact)?;
    // Integers alone are computed exactly.
    let still = roundoff == 0.0 || facts(op, &types).is_some_and(|facts| facts.exact);
    let declared: Vec<bool> =
        op.outputs().iter().filter_map(Declared::ty).map(|ty| ty.dtype.is_float()).collect();
    let is_float = |at: usize| declared.get(at).copied().unwrap_or(true);
    let copies_of_floats = if still || !declared.contains(&true) { 0 } else { copies };
    let moved = evaluation.copies(&outputs, amplitude, copies_of_floats)?;
    let mut deviation: Vec<Vec<f64>> = outputs.iter().map(|exact| vec![0.0; exact.len()]).collect();
    for (at, (largest, exact)) in deviation.iter_mut().zip(&outputs).enumerate() {
        moved
            .iter()
            .filter(|_| is_float(at))
            .for_each(|copy| widen(largest, exact.values(), copy[at].values()));
    }
    if !still && op.domain() == "onnx" && SUMS.contains(&op.name()) {
        let same_sign = |(at, tensor)| same_sign(op, at, tensor);
        let magnitudes = exact.iter().enumerate().map(same_sign).collect::<Result<Vec<_>>>()?;
        let magnitudes = evaluation.of(&magnitudes)?;
        for (deviation, partial) in deviation.iter_mut().zip(partial_sums(&outputs, &magnitudes)) {
            deviation.iter_mut().zip(partial).for_each(|(d, partial)| *d = d.max(amplitude * partial));
        }
    }
    if !still && given.domain() == "onnx" && LONG_SUMS.contains(&given.name())
        // Whoever evaluates an operator that TapML does not, does so in f64.
        && let Ok(serial) = evaluate(given, inputs)
    {
        for ((deviation, exact), serial) in deviation.iter_mut().zip(&outputs).zip(&serial) {
            let scale: Vec<f64> =
                exact.values().iter().zip(&*deviation).map(|(y, d)| y.abs().max(d / amplitude)).collect();
            let moves = alike(exact.values(), &serial.to_f64(), &scale, amplitude / reach);
            deviation.iter_mut().zip(moves).for_each(|(d, moves)| *d = d.max(moves));
        }
    }
    if given.domain() == "onnx" && given.name().ends_with("Window") {
        deviation.iter_mut().flatten().for_each(|d| *d = amplitude * WINDOW);
    }
    let mut integers: Vec<Option<OpenIntegers>> = vec![None; outputs.len()];
    if declared.contains(&false) {
        let rounded = tapml_onnx::integers(op, &op.placed(exact.iter().cloned()))?;
        let asked = op.outputs().iter().enumerate().filter(|(_, output)| output.is_asked());
        let rounded: Vec<Option<Integers>> =
            asked.map(|(place, _)| rounded.get(place).cloned().flatten()).collect();
        let known = |at: usize| is_float(at) || rounded.get(at).is_some_and(Option::is_some);
        if !still && !(0..outputs.len()).all(known) {
            let amplitude = reach * (roundoff / DType::F32.unit_roundoff()).max(1.0);
            let reached = evaluation.copies(&outputs, amplitude, copies)?;
            for at in (0..outputs.len()).filter(|&at| !known(at)) {
                integers[at] = Some(OpenIntegers::Reached(differing(&outputs[at], at, &reached)));
            }
        }
        for (open, rounded) in integers.iter_mut().zip(rounded) {
            let rounded = rounded.map(|integers| OpenIntegers::Rounded { integers, roundoff });
            *open = rounded.or_else(|| open.take());
        }
    }
    let shaped = deviation.into_iter().zip(&outputs);
    let deviation = shaped.map(|(values, exact)| Array::new(exact.shape().to_vec(), values));
    let deviation = deviation.collect::<Result<Vec<_>>>()?;
    Ok(ForeignOracle { found: Oracle { exact: outputs, deviation, inner: Vec::new() }, integers })
}

/// The values of an output that copies gave and the exact evaluation did not, each once.
fn differing(exact: &Array<f64>, at: usize, copies: &[Vec<Array<f64>>]) -> BTreeMap<usize, Vec<f64>> {
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

/// Runs a node of any kind in `f32`: one of TapML's own operators by the reference, any other by its evaluation.
pub fn run_any(op: &Op, symbols: &Symbols, inputs: &[Tensor], outputs: &[DType]) -> Result<Vec<Tensor>> {
    match op {
        Op::Foreign(op) => evaluate(op, inputs).context(|| op.kind().to_string()),
        op => crate::run_node(op, symbols, inputs, outputs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_terms_are_rounded_alike() {
        const TERMS: usize = 9000;
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape.iter().copied());
        let op = |name: &str, shape: &[usize]| {
            Foreign::new(name, Default::default(), vec![true], vec![Declared::As(ty(shape))]).unwrap()
        };
        let x = Tensor::from_f32(vec![1, 1, 90, 100], vec![1.375_327_2; TERMS]).unwrap();
        let op = op("onnx.GlobalAveragePool@1", &[1, 1, 1, 1]);
        let reach = 6e-8 * 30.0;
        let disturbance = Disturbance { amplitude: 1e-6, reach, copies: 2, seed: 1 };
        let found =
            oracle(&OwnEvaluator, &op, std::slice::from_ref(&x), &[false], disturbance).unwrap().found;
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
        let declared = vec![Declared::As(ty)];
        let op =
            Foreign::new("onnx.BatchNormalization@15", Default::default(), vec![true; 5], declared).unwrap();
        let weights = [false, true, true, true, true];
        let disturbance = Disturbance { amplitude: 1e-6, reach: 1e-6, copies: 4, seed: 1 };
        let inputs = [x, scale, bias, mean, variance];
        let found = oracle(&OwnEvaluator, &op, &inputs, &weights, disturbance).unwrap().found;
        // 2 · 0.001 - 100 + 100: the sum reaches 100 on its way to 0.002.
        assert!((found.exact[0].values()[0] - 0.002).abs() < 1e-3, "{:?}", found.exact);
        let reached = found.deviation[0].values()[0] / 1e-6;
        assert!((57.0..59.0).contains(&reached), "200 / (2 · √3), found {reached}");
    }
}
