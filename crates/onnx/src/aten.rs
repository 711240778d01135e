//! Operators of PyTorch, by the operators of the standard that they are defined by.
//!
//! [`tapml_graph::aten::define`] writes a call as a list of steps of ONNX operators. This file runs the steps in order.
//! It holds no arithmetic of its own, so that an operator of PyTorch and its definition cannot differ.
//!
//! A step reads only inputs, constants and outputs of steps before it. A definition that reads anything else is a bug.

use crate::call::{Evaluate, Outputs};
use crate::facts::CallFacts;
use crate::integers::OpenOutputs;
use crate::listed;
use tapml_graph::aten::{DOMAIN, Definition, OperandSource, define};
use tapml_graph::op::Foreign;
use tapml_graph::{Error, Result, Tensor, TensorType};

/// Whether the domain of `op` is the one of PyTorch.
pub fn is_one(op: &Foreign) -> bool {
    op.domain() == DOMAIN
}

/// The values of a call: those that it is given, constants, and what its steps gave.
struct CallValues<'a> {
    /// The inputs of the call, `None` where an optional one is absent.
    inputs: &'a [Option<Tensor>],
    /// The constants of the definition, by number.
    constants: Vec<Tensor>,
    /// The outputs of each step that has run, in order.
    steps: Vec<Vec<Option<Tensor>>>,
}

impl CallValues<'_> {
    /// One value.
    ///
    /// # Errors
    /// Of kind `Bug` if nothing has given the value yet.
    fn get(&self, source: OperandSource) -> Result<Tensor> {
        let found = match source {
            OperandSource::Input(place) => self.inputs.get(place).cloned().flatten(),
            OperandSource::Constant(at) => self.constants.get(at).cloned(),
            OperandSource::Step(step, place) => {
                self.steps.get(step).and_then(|outputs| outputs.get(place)).cloned().flatten()
            }
        };
        found.ok_or_else(|| Error::bug("a definition reads what is not there"))
    }

    /// The inputs of a step at their places; a place without a source stays absent.
    fn inputs_of(&self, sources: &[Option<OperandSource>]) -> Result<Vec<Option<Tensor>>> {
        sources.iter().map(|source| source.map(|source| self.get(source)).transpose()).collect()
    }
}

/// The definition for inputs of these dtypes and shapes, on which it depends: PyTorch promotes dtypes.
fn find_definition(op: &Foreign, inputs: &[Option<Tensor>]) -> Result<Definition> {
    let ty = |tensor: &Tensor| TensorType::new(tensor.dtype(), tensor.shape().iter().copied());
    let types: Vec<Option<TensorType>> = inputs.iter().map(|tensor| tensor.as_ref().map(ty)).collect();
    define(op, &types)
}

/// The values of all steps, each evaluated as its own ONNX operator.
///
/// With `wide`, intermediate floats stay `f64`: only the final comparison rounds.
fn run<'a>(
    definition: &Definition,
    inputs: &'a [Option<Tensor>],
    wide: bool,
    within: Evaluate,
) -> Result<CallValues<'a>> {
    let mut values = CallValues { inputs, constants: definition.constants.clone(), steps: Vec::new() };
    for step in &definition.steps {
        let given = values.inputs_of(&step.inputs)?;
        values.steps.push(listed::evaluate(&step.op, &given, wide, within)?);
    }
    Ok(values)
}

/// As [`crate::evaluate`]; `within` evaluates the operators of graphs within.
pub fn evaluate(op: &Foreign, inputs: &[Option<Tensor>], wide: bool, within: Evaluate) -> Outputs {
    let definition = find_definition(op, inputs)?;
    let values = run(&definition, inputs, wide, within)?;
    definition.outputs.iter().map(|output| output.map(|output| values.get(output)).transpose()).collect()
}

/// As [`crate::facts`]: it rounds if one of its steps does, and its longest sum is that of a step.
pub fn facts(op: &Foreign, inputs: &[Option<TensorType>]) -> Option<CallFacts> {
    let definition = define(op, inputs).ok()?;
    let mut all = CallFacts { exact: true, terms: 1 };
    for step in &definition.steps {
        // A step without facts makes those of the whole unknown: a guess would be too strict or too lenient.
        let found = listed::facts(&step.op, &step.op.place_inputs(step.types.iter().cloned()))?;
        all = CallFacts { exact: all.exact && found.exact, terms: all.terms.max(found.terms) };
    }
    Some(all)
}

/// As [`crate::integers`]: what the step leaves open that gives an output.
pub fn integers(op: &Foreign, inputs: &[Option<Tensor>], within: Evaluate) -> OpenOutputs {
    let definition = find_definition(op, inputs)?;
    let opens = |source: &Option<OperandSource>| match source {
        Some(OperandSource::Step(step, _)) => {
            listed::find(&definition.steps[*step].op).is_some_and(|row| row.integers.is_some())
        }
        _ => false,
    };
    // Running all steps is expensive, and most definitions leave nothing open.
    if !definition.outputs.iter().any(opens) {
        return Ok(Vec::new());
    }
    let values = run(&definition, inputs, true, within)?;
    let open = |source: &Option<OperandSource>| match source {
        Some(OperandSource::Step(step, place)) => {
            let (step, given) =
                (&definition.steps[*step], values.inputs_of(&definition.steps[*step].inputs)?);
            // The step is asked again with the values that it was given.
            Ok(listed::integers(&step.op, &given, within)?.into_iter().nth(*place).flatten())
        }
        _ => Ok(None),
    };
    definition.outputs.iter().map(open).collect()
}
