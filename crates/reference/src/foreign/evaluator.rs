//! Who evaluates operators of others, and what is known of them.

use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Dim, Error, Op, Result, Tensor, TensorType};
use tapml_onnx::CallFacts;

/// Terms of a sum where nothing is known of an operator but the sizes of its inputs: the longest of them.
fn longest(inputs: &[TensorType]) -> u64 {
    inputs.iter().flat_map(|ty| &ty.shape).filter_map(Dim::as_const).max().unwrap_or(0)
}

/// What is known of an operator on inputs of these types.
pub fn facts(op: &Foreign, inputs: &[TensorType]) -> Option<CallFacts> {
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
pub fn wide(ty: &TensorType) -> TensorType {
    TensorType { dtype: if ty.dtype.is_float() { DType::F64 } else { ty.dtype }, shape: ty.shape.clone() }
}

/// A tensor's type.
pub fn tensor_type(tensor: &Tensor) -> TensorType {
    TensorType::new(tensor.dtype(), tensor.shape().iter().copied())
}
