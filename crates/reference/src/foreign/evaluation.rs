//! The exact values of a call, and how far they move: with its inputs, and by the arithmetic of every node.
//!
//! Disturbed inputs do not show every error of an operator's own arithmetic: where terms cancel, partial sums are larger than
//! the result and are rounded at their own size. So each node is also asked how large its partial sums can be.

use super::evaluator::{Evaluator, evaluate};
use super::steps::{DefinitionStep, Steps};
use crate::deviation::widen;
use crate::random::Uniform;
use crate::value::Array;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use tapml_graph::op::Foreign;
use tapml_graph::{DType, Error, Result, Tensor};

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

/// What a node hands to another in place of a value: of the number of the value, the value, and the copy; `None` to leave it.
type Moved<'m> = dyn Fn(usize, &Tensor, usize) -> Result<Option<Tensor>> + Sync + 'm;

/// How much farther than a sum of one term after the other a right one may be off.
const ORDER_MARGIN: f64 = 2.0;

/// How far the elements of an output must be able to move so that the error of `serial`, the same call in the precision of its
/// inputs, is allowed [`BESIDE_SERIAL`] times. Equal terms are rounded alike, as long as the sum has the same exponent: such errors
/// add up, while the roundings of a verdict's sums are taken to cancel in part. What one element shows holds for all of an output,
/// in proportion to `scale`.
fn deviation_to_serial(exact: &[f64], serial: &[f64], scale: &[f64], unit: f64) -> Vec<f64> {
    let share = |((exact, serial), scale): ((&f64, &f64), &f64)| (serial - exact).abs() / scale;
    let shares = exact.iter().zip(serial).zip(scale).map(share).filter(|share| share.is_finite());
    // Elements that are exact by chance say nothing, so that the worst one holds for all.
    let worst = shares.fold(0.0, f64::max);
    scale.iter().map(|scale| ORDER_MARGIN * worst * scale * unit).collect()
}

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

/// A call in `f64`, evaluated with its inputs as they are, or disturbed.
pub(super) struct Evaluation<'a> {
    /// Who evaluates nodes in `f64`.
    pub evaluator: &'a dyn Evaluator,
    /// The nodes of the call.
    pub steps: &'a Steps,
    /// The inputs, floats as `f64`.
    pub inputs: &'a [Tensor],
    /// Whether each input is a weight.
    pub is_weight: &'a [bool],
    /// What decides the random numbers.
    pub seed: u64,
}

impl Evaluation<'_> {
    /// All values, of these inputs.
    ///
    /// # Errors
    /// If the evaluator does not evaluate a node.
    pub fn values(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.steps.evaluate(self.evaluator, inputs, self.is_weight)
    }

    /// The outputs among all values.
    pub fn outputs(&self, values: &[Tensor]) -> Result<Vec<Array<f64>>> {
        self.steps.outputs.iter().map(|&at| array(&values[at])).collect()
    }

    /// One copy of the inputs, each float times `1 + amplitude · U(−1, 1)`. Weights are disturbed only where all floats are.
    fn disturb_inputs(&self, amplitude: f64, copy: usize) -> Result<Vec<Tensor>> {
        let floats = |tensor: &Tensor| tensor.dtype().is_float();
        // A call on weights alone would not move otherwise.
        let only_weights =
            self.inputs.iter().zip(self.is_weight).all(|(tensor, weight)| *weight || !floats(tensor));
        // The numbers of `Range` decide the size of its output, and not their last digits.
        let sized = self.steps.all.iter().any(|step| step.given.name() == "Range");
        let one = |(at, tensor): (usize, &Tensor)| {
            if !floats(tensor) || sized || (self.is_weight[at] && !only_weights) {
                return Ok(tensor.clone());
            }
            let mut values = tensor.to_f64();
            let noise = noise(self.seed, &[at as u64, copy as u64], values.len());
            values.iter_mut().zip(noise).for_each(|(value, noise)| *value *= 1.0 + amplitude * noise);
            Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &values)
        };
        self.inputs.iter().enumerate().map(one).collect()
    }

    /// The outputs of disturbed copies, each of the shapes that the exact ones have.
    ///
    /// # Errors
    /// Of kind `Unsupported` if a copy has outputs of other shapes.
    pub fn copies(
        &self,
        exact: &[Array<f64>],
        amplitude: f64,
        copies: usize,
    ) -> Result<Vec<Vec<Array<f64>>>> {
        let copy = |copy: usize| {
            let outputs = self.outputs(&self.values(&self.disturb_inputs(amplitude, copy)?)?)?;
            if outputs.iter().map(Array::shape).eq(exact.iter().map(Array::shape)) {
                Ok(outputs)
            } else {
                Err(Error::unsupported("the sizes of its outputs depend on the last digits of its inputs"))
            }
        };
        (0..copies).into_par_iter().map(copy).collect()
    }

    /// The largest change of each output element over copies in which `moved` is what a node hands to another. It is given
    /// the number of the value, the value, and the copy.
    ///
    /// # Errors
    /// If a node cannot be evaluated on what it is handed.
    fn disturb_handed(&self, values: &[Tensor], copies: usize, moved: &Moved<'_>) -> Result<Vec<Vec<f64>>> {
        let used: Vec<usize> = self.steps.all.iter().flat_map(|step| step.inputs.clone()).collect();
        let copy = |copy: usize| -> Result<Vec<Array<f64>>> {
            // An output of the call is what a node computed; only what other nodes read is changed.
            let (mut computed, mut handed) = (values.to_vec(), values.to_vec());
            let mut changed = vec![false; values.len()];
            for step in &self.steps.all {
                // A node that reads nothing new gives what it gave before.
                if step.inputs.iter().any(|&at| changed[at]) {
                    let made = step.evaluate(self.evaluator, &handed, self.is_weight)?;
                    for (&at, made) in step.outputs.iter().zip(made) {
                        (computed[at], handed[at], changed[at]) = (made.clone(), made, true);
                    }
                }
                for &at in step.outputs.iter().filter(|at| used.contains(at)) {
                    if let Some(other) = moved(at, &computed[at], copy)? {
                        (handed[at], changed[at]) = (other, true);
                    }
                }
            }
            self.outputs(&computed)
        };
        let all: Vec<_> = (0..copies).into_par_iter().map(copy).collect::<Result<_>>()?;
        let mut largest = Vec::new();
        for (at, exact) in self.outputs(values)?.iter().enumerate() {
            let mut own = vec![0.0; exact.len()];
            all.iter().for_each(|copy| widen(&mut own, exact.values(), copy[at].values()));
            largest.push(own);
        }
        Ok(largest)
    }

    /// Widens how far the outputs of a node move by what its own arithmetic errs. `given` are the inputs of the call as they
    /// are recorded and the constants of a definition, by their numbers.
    ///
    /// # Errors
    /// If the evaluator does not evaluate the node on its operands' magnitudes.
    fn own_errors(
        &self,
        step: &DefinitionStep,
        (values, given): (&[Tensor], &[Tensor]),
        Disturbance { amplitude, reach, .. }: Disturbance,
        deviation: &mut [Vec<f64>],
    ) -> Result<()> {
        let op = &step.given;
        if op.domain() != "onnx" {
            return Ok(());
        }
        let exact: Vec<Array<f64>> =
            step.outputs.iter().map(|&at| array(&values[at])).collect::<Result<_>>()?;
        if SUMS.contains(&op.name()) {
            let taken = step.take_operands(values);
            let same_sign = |(at, tensor)| same_sign(op, at, tensor);
            let taken = taken.iter().enumerate().map(same_sign).collect::<Result<Vec<_>>>()?;
            let constants = step.constants(self.is_weight);
            let magnitudes = self.evaluator.evaluate(&step.wide, &taken, &constants)?;
            let magnitudes = magnitudes.iter().map(array).collect::<Result<Vec<_>>>()?;
            for (deviation, partial) in deviation.iter_mut().zip(partial_sums(&exact, &magnitudes)) {
                deviation.iter_mut().zip(partial).for_each(|(d, partial)| *d = d.max(amplitude * partial));
            }
        }
        let recorded = step.inputs.iter().map(|&at| given.get(at).cloned()).collect::<Option<Vec<_>>>();
        if let (true, Some(recorded)) = (LONG_SUMS.contains(&op.name()), recorded)
            // Whoever evaluates an operator that TapML does not, does so in f64.
            && let Ok(serial) = evaluate(op, &recorded)
        {
            for ((deviation, exact), serial) in deviation.iter_mut().zip(&exact).zip(&serial) {
                let scale: Vec<f64> =
                    exact.values().iter().zip(&*deviation).map(|(y, d)| y.abs().max(d / amplitude)).collect();
                let moves = deviation_to_serial(exact.values(), &serial.to_f64(), &scale, amplitude / reach);
                deviation.iter_mut().zip(moves).for_each(|(d, moves)| *d = d.max(moves));
            }
        }
        Ok(())
    }

    /// Widens how far the outputs move by the arithmetic of every node, whose errors those behind it hand on; gives how far
    /// they move where values between nodes have fewer digits than f32 and are rounded.
    pub fn arithmetic(
        &self,
        values: &[Tensor],
        given: &[Tensor],
        disturbance: Disturbance,
        deviation: &mut [Vec<f64>],
    ) -> Result<Vec<Vec<f64>>> {
        let Disturbance { amplitude, copies, seed, .. } = disturbance;
        let given = self.steps.initial_values(given);
        let mut errors: HashMap<usize, Vec<f64>> = HashMap::new();
        let mut notation: HashSet<usize> = HashSet::new();
        for step in &self.steps.all {
            // Such a value is stored nowhere, so that nothing is rounded there.
            if self.steps.is_notation(step, values) {
                notation.extend(&step.outputs);
                continue;
            }
            let place = |at: &usize| self.steps.outputs.iter().position(|output| output == at);
            let base = |at: &usize| {
                place(at).map_or_else(|| vec![0.0; values[*at].len()], |at| deviation[at].clone())
            };
            let mut own: Vec<Vec<f64>> = step.outputs.iter().map(base).collect();
            self.own_errors(step, (values, &given), disturbance, &mut own)?;
            for (at, own) in step.outputs.iter().zip(own) {
                if let Some(place) = place(at) {
                    deviation[place].clone_from(&own);
                }
                errors.insert(*at, own);
            }
        }
        if !self.steps.has_intermediates() {
            return Ok(Vec::new());
        }
        let moved = |at: usize, value: &Tensor, copy: usize| {
            if !value.dtype().is_float() || notation.contains(&at) {
                return Ok(None);
            }
            let noise = noise(seed, &[u64::MAX, at as u64, copy as u64], value.len());
            let own = errors.get(&at).map_or(&[][..], Vec::as_slice);
            let move_by = |(i, (v, noise)): (usize, (f64, f64))| match own.get(i) {
                Some(&error) if error > 0.0 && error.is_finite() => v + error * noise.signum(),
                _ => v + amplitude * v * noise,
            };
            let values: Vec<f64> = value.to_f64().into_iter().zip(noise).enumerate().map(move_by).collect();
            Tensor::from_f64(DType::F64, value.shape().to_vec(), &values).map(Some)
        };
        for (deviation, moved) in deviation.iter_mut().zip(self.disturb_handed(values, copies, &moved)?) {
            deviation.iter_mut().zip(moved).for_each(|(d, moved)| *d = d.max(moved));
        }
        let narrow =
            |at: usize| self.steps.dtype(at).filter(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        if !(self.steps.first()..values.len()).any(|at| narrow(at).is_some()) {
            return Ok(Vec::new());
        }
        self.disturb_handed(values, copies, &|at, value, copy| {
            let Some(dtype) = narrow(at) else { return Ok(None) };
            let noise = noise(seed, &[u64::MAX - 1, at as u64, copy as u64], value.len());
            let (unit, normal) = (dtype.unit_roundoff(), dtype.min_normal());
            // Below the normal numbers steps have one size; 0 is exact.
            let round =
                |(v, noise): (f64, f64)| if v == 0.0 { v } else { v + unit * v.abs().max(normal) * noise };
            let values: Vec<f64> = value.to_f64().into_iter().zip(noise).map(round).collect();
            Tensor::from_f64(DType::F64, value.shape().to_vec(), &values).map(Some)
        })
    }
}

/// A tensor's numbers.
fn array(tensor: &Tensor) -> Result<Array<f64>> {
    Array::new(tensor.shape().to_vec(), tensor.to_f64())
}

/// So many numbers of one stream, each in −1..1.
fn noise(seed: u64, coordinates: &[u64], count: usize) -> Vec<f64> {
    Uniform::new(seed, coordinates).pieces(0, count).flatten().copied().collect()
}
