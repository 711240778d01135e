//! Operators of others on values of the reference.

use crate::real::Real;
use crate::value::Value;
use tapml_graph::op::Foreign;
use tapml_graph::{DType, Result, Tensor};

/// The outputs of an operator of others on numbers of one type; see [`crate::eval`]. Fails on inputs that are integers.
pub(crate) fn eval<T: Real>(op: &Foreign, inputs: &[Value<T>]) -> Result<Vec<Value<T>>> {
    let inputs: Vec<Tensor> = inputs.iter().map(|value| value.to_tensor(T::DTYPE)).collect::<Result<_>>()?;
    let given = op.place_inputs(inputs);
    let outputs = tapml_onnx::evaluate(op, &given, T::DTYPE == DType::F64)?;
    outputs.iter().flatten().map(Value::from_tensor).collect()
}
