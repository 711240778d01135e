//! Operators of others: who evaluates them exactly, and how far their exact results move.

use crate::oracle::{Oracle, widen};
use crate::random::Uniform;
use crate::value::Array;
use rayon::prelude::*;
use tapml_graph::op::{Declared, Foreign};
use tapml_graph::{Context, DType, Dim, Error, Op, Result, Symbols, Tensor, TensorType};
use tapml_onnx::Facts;

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
const SUMS: [&str; 9] = [
    "AveragePool",
    "Conv",
    "ConvTranspose",
    "Gemm",
    "GlobalAveragePool",
    "MatMul",
    "ReduceMean",
    "ReduceSum",
    "Sum",
];

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

/// As [`crate::oracle`], for an operator of others. Inputs that are weights are disturbed only where all are.
pub fn oracle(
    evaluator: &dyn Evaluator,
    op: &Foreign,
    inputs: &[Tensor],
    is_weight: &[bool],
    (amplitude, copies, seed): (f64, usize, u64),
) -> Result<Oracle> {
    let types: Vec<TensorType> =
        inputs.iter().map(|t| TensorType::new(t.dtype(), t.shape().iter().copied())).collect();
    let op = widened(op)?;
    let exact: Vec<Tensor> = inputs.iter().map(widened_tensor).collect::<Result<_>>()?;
    let run = |inputs: &[Tensor]| {
        let outputs = evaluator.evaluate(&op, inputs, is_weight)?;
        outputs.iter().map(|t| Array::new(t.shape().to_vec(), t.to_f64())).collect::<Result<Vec<_>>>()
    };
    let outputs = run(&exact)?;
    let still = facts(&op, &types).is_some_and(|facts| facts.exact);
    let copies = if still { 0 } else { copies };
    let floats = |tensor: &Tensor| tensor.dtype().is_float();
    let only_weights = exact.iter().zip(is_weight).all(|(tensor, weight)| *weight || !floats(tensor));
    let disturbed = |copy: usize| {
        let one = |(at, tensor): (usize, &Tensor)| {
            // The numbers of `Range` decide the size of its output, and not their last digits.
            if !floats(tensor) || op.name() == "Range" || (is_weight[at] && !only_weights) {
                return Ok(tensor.clone());
            }
            let stream = Uniform::new(seed, &[at as u64, copy as u64]);
            let mut values = tensor.to_f64();
            let mut rest = values.iter_mut();
            for piece in stream.pieces(0, tensor.len()) {
                for (&noise, value) in piece.iter().zip(&mut rest) {
                    *value *= 1.0 + amplitude * noise;
                }
            }
            Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &values)
        };
        exact.iter().enumerate().map(one).collect::<Result<Vec<Tensor>>>()
    };
    let moved: Vec<Vec<Array<f64>>> =
        (0..copies).into_par_iter().map(|copy| run(&disturbed(copy)?)).collect::<Result<_>>()?;
    let mut deviation = Vec::new();
    for (at, exact) in outputs.iter().enumerate() {
        let mut largest = vec![0.0; exact.len()];
        for copy in &moved {
            let copy = copy.get(at).filter(|copy| copy.shape() == exact.shape()).ok_or_else(|| {
                Error::unsupported("the sizes of its outputs depend on the last digits of its inputs")
            })?;
            widen(&mut largest, exact.values(), copy.values());
        }
        deviation.push(largest);
    }
    if !still && op.domain() == "onnx" && SUMS.contains(&op.name()) {
        let magnitude = |tensor: &Tensor| match floats(tensor) {
            true => {
                let values: Vec<f64> = tensor.to_f64().iter().map(|v| v.abs()).collect();
                Tensor::from_f64(DType::F64, tensor.shape().to_vec(), &values)
            }
            false => Ok(tensor.clone()),
        };
        let magnitudes = run(&exact.iter().map(magnitude).collect::<Result<Vec<_>>>()?)?;
        for (deviation, partial) in deviation.iter_mut().zip(partial_sums(&outputs, &magnitudes)) {
            deviation.iter_mut().zip(partial).for_each(|(d, partial)| *d = d.max(amplitude * partial));
        }
    }
    let shaped = deviation.into_iter().zip(&outputs);
    let deviation = shaped.map(|(values, exact)| Array::new(exact.shape().to_vec(), values));
    let deviation = deviation.collect::<Result<Vec<_>>>()?;
    Ok(Oracle { exact: outputs, deviation, inner: Vec::new() })
}

/// Runs a node of any kind in `f32`: one of TapML's own operators by the reference, any other by its evaluation.
pub fn run_any(op: &Op, symbols: &Symbols, inputs: &[Tensor], outputs: &[DType]) -> Result<Vec<Tensor>> {
    match op {
        Op::Foreign(op) => evaluate(op, inputs).context(|| op.kind().to_string()),
        op => crate::run_node(op, symbols, inputs, outputs),
    }
}
