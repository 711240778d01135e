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
mod integers;
mod list;
mod number;
mod op;
mod product;
mod real;
mod window;

pub use array::limit_elements;
pub use facts::CallFacts;
pub use integers::{Integers, integers};

use call::Call;
use list::EvaluationKind;
use tapml_graph::op::Foreign;
use tapml_graph::{Context, Error, Result, Tensor, TensorType};

/// Version that an operator without one has: the newest.
const NEWEST: u32 = u32::MAX;

fn find(op: &Foreign) -> Option<&'static list::OperatorRow> {
    let version = op.version().unwrap_or(NEWEST);
    let row = |row: &&list::OperatorRow| row.domain == op.domain() && row.name == op.name();
    list::ROWS.iter().filter(row).find(|row| row.since <= version && version <= row.until)
}

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
        return aten::evaluate(op, inputs, wide);
    }
    let row = find(op).ok_or_else(|| {
        if op.domain() == "onnx" && list::RANDOM.contains(&op.name()) {
            let text = format!("`{}` has no evaluation: it draws random numbers", op.kind());
            return Error::unsupported(text);
        }
        let error = Error::unsupported(format!("`{}` has no evaluation", op.kind()));
        error.with_hint("evaluate it with another oracle, such as ONNX's reference evaluator")
    })?;
    let call = Call::new(op, inputs, wide);
    let run = || {
        // Inputs are bounded as results are: [`limit_elements`] speaks of both.
        for (place, tensor) in inputs.iter().enumerate() {
            let volume = tensor.as_ref().map_or(Ok(0), |tensor| array::volume(tensor.shape()));
            volume.context(|| format!("input {place}"))?;
        }
        // `check_attributes` comes after the function, because only then it is known what was read.
        let outputs = match row.run {
            EvaluationKind::Float { single, double } => {
                if call.is_double() {
                    double(&call)?
                } else {
                    single(&call)?
                }
            }
            EvaluationKind::Any(function) => function(&call)?,
        };
        call.check_attributes()?;
        call.place(outputs)
    };
    run().context(|| format!("`{}`", op.kind()))
}

/// What a verdict has to know of an operator with inputs of these types. `None` if there is no evaluation of it, or if a
/// size is not constant.
pub fn facts(op: &Foreign, inputs: &[Option<TensorType>]) -> Option<CallFacts> {
    if aten::is_one(op) {
        return aten::facts(op, inputs);
    }
    let row = find(op)?;
    facts::InputSizes::new(op, inputs).map(|sizes| (row.facts)(&sizes))
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
