//! Evaluations of ONNX operators on the host, in `f32` and in `f64`: what a verdict compares a target's outputs with.
//! It reads no files and knows no graphs: an operator comes as a [`Foreign`] with tensors at the places of its inputs.
//!
//! Every operator is one row of [`list`]: its name, its versions, its function and what a verdict has to know of it. Operators of
//! PyTorch are evaluated by those that [`tapml_graph::aten`] defines them by.
//!
//! ```
//! use tapml_graph::{Tensor, op::{DeclaredType, Foreign}};
//!
//! let relu = Foreign::new("onnx.Relu@14", Default::default(), vec![true], vec![DeclaredType::Unknown])?;
//! let x = Tensor::from_f32(vec![2], vec![-1.0, 3.0])?;
//! let y = tapml_onnx::evaluate(&relu, &[Some(x)], false)?.remove(0).expect("it is asked for");
//! assert_eq!(y.to_f64(), [0.0, 3.0]);
//! # Ok::<(), tapml_graph::Error>(())
//! ```
#![warn(missing_docs)]

mod array;
mod aten;
mod call;
mod facts;
mod gemm;
mod integers;
mod list;
mod listed;
mod number;
mod op;
mod product;
mod real;
mod window;

pub use array::limit_elements;
pub use facts::CallFacts;
pub use integers::Integers;

use tapml_graph::op::Foreign;
use tapml_graph::{Result, Tensor, TensorType};

/// Evaluates one operator.
///
/// `inputs` stand at their places, `None` where an optional one is absent. The result has a place for every output of `op`
/// and a tensor at every place that is asked for.
///
/// Floats are computed in `f64` if `wide` or if an input is `f64`, else in `f32`; `f16` and `bf16` are computed in `f32` and
/// rounded once. With `wide`, every float of the result is `f64` and is not rounded to the dtype that the operator would
/// store it in. Integers wrap in their own width.
///
/// # Errors
/// Of kind `Unsupported`, with the operator and what is not served, if there is no evaluation. Of kind `InvalidInput` if the
/// inputs do not fit the operator, or if a result would have more than 2³¹ elements.
pub fn evaluate(op: &Foreign, inputs: &[Option<Tensor>], wide: bool) -> Result<Vec<Option<Tensor>>> {
    if aten::is_one(op) {
        return aten::evaluate(op, inputs, wide, evaluate);
    }
    listed::evaluate(op, inputs, wide, evaluate)
}

/// What a verdict has to know of an operator with inputs of these types. `None` if there is no evaluation of it, or if a
/// size is not constant.
pub fn facts(op: &Foreign, inputs: &[Option<TensorType>]) -> Option<CallFacts> {
    if aten::is_one(op) {
        return aten::facts(op, inputs);
    }
    listed::facts(op, inputs)
}

/// What the outputs of an operator leave open, at the places of its outputs; `None` for floats, and for integers that are not
/// rounded. The inputs' floats may be `f64` in the place of others.
///
/// # Errors
/// As [`evaluate`].
pub fn integers(op: &Foreign, inputs: &[Option<Tensor>]) -> integers::OpenOutputs {
    if aten::is_one(op) {
        return aten::integers(op, inputs, evaluate);
    }
    listed::integers(op, inputs, evaluate)
}

/// Names of the operators that have an evaluation in some version and domain, each once.
pub fn names() -> impl Iterator<Item = &'static str> {
    let first = |(at, row): (usize, &'static list::OperatorRow)| {
        // An operator has one row for each domain and range of versions.
        let earlier = list::ROWS[..at].iter().any(|other| other.name == row.name);
        (!earlier).then_some(row.name)
    };
    list::ROWS.iter().enumerate().filter_map(first)
}
