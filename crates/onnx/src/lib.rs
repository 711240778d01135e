//! Evaluations of ONNX operators.
#![warn(missing_docs)]

use tapml_graph::op::Foreign;
use tapml_graph::{Error, Result, Tensor, TensorType};

/// What a verdict has to know of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether it only moves or chooses data, so that nothing is rounded.
    pub exact: bool,
    /// Terms of its longest sum.
    pub terms: usize,
}

/// The outputs at their places. [`tapml_graph::ErrorKind::Unsupported`] if the operator is not served.
pub fn evaluate(op: &Foreign, _inputs: &[Option<Tensor>], _wide: bool) -> Result<Vec<Option<Tensor>>> {
    Err(Error::unsupported(format!("`{}` has no evaluation", op.kind())))
}

/// What is known of an operator on inputs of these types.
pub fn facts(_op: &Foreign, _inputs: &[Option<TensorType>]) -> Option<Facts> {
    None
}
