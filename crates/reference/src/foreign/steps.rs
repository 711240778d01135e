//! The nodes that a call of an operator of others runs: its own one, those that define it, or those that a fused operator stands for.
//!
//! Each node is kept in two forms: as the graph has it and with `f64` in the place of its floats. Both have the same inputs.

use super::evaluator::{self, Evaluator, facts, tensor_type, wide, widen_outputs};
use std::collections::HashMap;
use tapml_graph::aten::{Definition, OperandSource, define};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Error, Graph, Op, Result, Tensor, TensorType, ValueId};

/// Nodes in their order. Values are numbered: the inputs of the call first, then constants, then what each node gives.
pub(super) struct Steps {
    /// The nodes.
    pub all: Vec<DefinitionStep>,
    /// Values that are the inputs of the call.
    pub inputs: usize,
    /// Numbers of a definition.
    constants: Vec<DefinitionConstant>,
    /// Whether the nodes define one operator, so that nothing is stored between them.
    is_definition: bool,
    /// The values that the call gives.
    pub outputs: Vec<usize>,
    /// Their declared types, as far as they are declared.
    pub types: Vec<Option<TensorType>>,
}

/// A number that a definition holds.
struct DefinitionConstant {
    /// In the dtype of the inputs.
    given: Tensor,
    /// In `f64`, if it is a float.
    wide: Tensor,
}

/// One node.
pub(super) struct DefinitionStep {
    /// As it stands in the graph.
    pub given: Foreign,
    /// With `f64` in the place of the floats that it declares.
    pub wide: Foreign,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

impl Steps {
    /// Of an operator of others with so many inputs, or of a fused one that stands for such.
    ///
    /// # Errors
    /// Of kind `Bug` for TapML's own operators.
    pub fn from_op(op: &Op, inputs: usize) -> Result<Steps> {
        match op {
            Op::Foreign(op) => {
                let types: Vec<_> =
                    op.outputs().iter().filter(|o| o.is_asked()).map(|o| o.ty().cloned()).collect();
                let outputs: Vec<usize> = (inputs..).take(types.len()).collect();
                let (given, wide) = (op.clone(), widen_outputs(op)?);
                let all = vec![DefinitionStep {
                    given,
                    wide,
                    inputs: (0..inputs).collect(),
                    outputs: outputs.clone(),
                }];
                Ok(Steps { all, inputs, constants: Vec::new(), is_definition: false, outputs, types })
            }
            Op::Fused(fused) => Steps::of_body(fused.body()),
            _ => Err(Error::bug(format!("`{}` is no operator of others", op.name()))),
        }
    }

    /// The operators of the standard that define `op` on inputs of these types; `None` if it has no definition, or another one in
    /// `f64` than in the dtypes of its inputs.
    pub fn of_definition(op: &Foreign, inputs: &[TensorType]) -> Result<Option<Steps>> {
        let types: Vec<TensorType> = inputs.iter().map(wide).collect();
        let given = define(op, &op.place_inputs(inputs.iter().cloned()));
        let exact = define(&widen_outputs(op)?, &op.place_inputs(types));
        let (Ok(given), Ok(exact)) = (given, exact) else { return Ok(None) };
        let kinds = |definition: &Definition| -> Vec<&str> {
            definition.steps.iter().map(|step| step.op.kind()).collect()
        };
        // A definition that casts between floats has other steps in `f64`.
        if kinds(&given) != kinds(&exact) || given.constants.len() != exact.constants.len() {
            return Ok(None);
        }
        // A definition counts places, with the absent ones; values are numbered without these.
        let places = op.place_inputs(0..inputs.len());
        // Of each step: the numbers of what it gives, by their places.
        let mut made: Vec<Vec<Option<usize>>> = Vec::new();
        let mut next = inputs.len() + exact.constants.len()..;
        let number = |source: OperandSource, made: &[Vec<Option<usize>>]| {
            let found = match source {
                OperandSource::Input(place) => places.get(place).copied().flatten(),
                OperandSource::Constant(at) => Some(inputs.len() + at),
                OperandSource::Step(step, place) => {
                    made.get(step).and_then(|made| made.get(place)).copied().flatten()
                }
            };
            found.ok_or_else(|| Error::bug("a definition reads what is not there"))
        };
        let mut all = Vec::new();
        for (given, exact) in given.steps.into_iter().zip(exact.steps) {
            let sources = exact.inputs.iter().flatten();
            let taken = sources.map(|&source| number(source, &made)).collect::<Result<_>>()?;
            let asked = exact.op.outputs().iter().map(DeclaredType::is_asked);
            let numbers = asked.map(|asked| asked.then(|| next.next()).flatten()).collect();
            made.push(numbers);
            let outputs = made.last().into_iter().flatten().flatten().copied().collect();
            all.push(DefinitionStep {
                given: given.op,
                wide: widen_outputs(&exact.op)?,
                inputs: taken,
                outputs,
            });
        }
        let constants = given.constants.into_iter().zip(exact.constants);
        let constants = constants.map(|(given, wide)| DefinitionConstant { given, wide }).collect();
        let outputs = exact.outputs.iter().flatten().map(|&source| number(source, &made));
        let types = op.outputs().iter().filter(|o| o.is_asked()).map(|o| o.ty().cloned()).collect();
        let outputs = outputs.collect::<Result<_>>()?;
        Ok(Some(Steps { all, inputs: inputs.len(), constants, is_definition: true, outputs, types }))
    }

    /// The values that stand before what the nodes give, in the dtypes that the call has them in.
    pub fn initial_values(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        inputs.iter().chain(self.constants.iter().map(|constant| &constant.given)).cloned().collect()
    }

    /// The nodes of a fused operator's body.
    ///
    /// # Errors
    /// Of kind `Unsupported` if one of them is TapML's own.
    fn of_body(body: &Graph) -> Result<Steps> {
        let mut numbers: HashMap<ValueId, usize> = body.inputs().map(|(id, _)| id).zip(0..).collect();
        let inputs = numbers.len();
        let mut all = Vec::new();
        for node in body.nodes() {
            // Its own operators have another oracle.
            let Op::Foreign(op) = &node.op else {
                let text = format!("`{}` stands beside operators of others", node.op.name());
                return Err(Error::unsupported(text));
            };
            let taken = node.inputs.iter().map(|value| numbers[value]).collect();
            for &value in &node.outputs {
                numbers.insert(value, numbers.len());
            }
            let outputs = node.outputs.iter().map(|value| numbers[value]).collect();
            all.push(DefinitionStep { given: op.clone(), wide: widen_outputs(op)?, inputs: taken, outputs });
        }
        let results = || body.outputs().iter().map(|output| output.value);
        let types = results().map(|value| Some(body.value(value).ty.clone())).collect();
        let outputs = results().map(|value| numbers[&value]).collect();
        Ok(Steps { all, inputs, constants: Vec::new(), is_definition: false, outputs, types })
    }

    /// Whether all that happens is exact.
    pub fn are_exact(&self, inputs: &[TensorType]) -> bool {
        let constants = self.constants.iter().map(|constant| tensor_type(&constant.given));
        let mut types: Vec<TensorType> = inputs.iter().cloned().chain(constants).collect();
        self.all.iter().all(|step| {
            let own: Vec<TensorType> = step.inputs.iter().filter_map(|&at| types.get(at).cloned()).collect();
            types.extend(step.given.outputs().iter().filter_map(DeclaredType::ty).cloned());
            facts(&step.given, &own).is_some_and(|facts| facts.exact)
        })
    }

    /// All values in `f64`. `weights` says of each input whether it is a weight.
    pub fn evaluate(
        &self,
        evaluator: &dyn Evaluator,
        inputs: &[Tensor],
        weights: &[bool],
    ) -> Result<Vec<Tensor>> {
        let constants = self.constants.iter().map(|constant| &constant.wide);
        let mut values: Vec<Tensor> = inputs.iter().chain(constants).cloned().collect();
        for step in &self.all {
            values.extend(step.evaluate(evaluator, &values, weights)?);
        }
        Ok(values)
    }

    /// All values in the dtypes that the nodes declare.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut values = self.initial_values(inputs);
        for step in &self.all {
            values.extend(evaluator::evaluate(&step.given, &step.take_operands(&values))?);
        }
        Ok(values)
    }

    /// The number of the first value that a node gives.
    pub fn first(&self) -> usize {
        self.inputs + self.constants.len()
    }

    /// Whether a node uses what another gives.
    pub fn has_intermediates(&self) -> bool {
        self.all.iter().flat_map(|step| &step.inputs).any(|&value| value >= self.first())
    }

    /// Whether a node only moves numbers because a definition is written so: no platform rounds there.
    pub fn is_notation(&self, step: &DefinitionStep, values: &[Tensor]) -> bool {
        let types: Vec<TensorType> = step.inputs.iter().map(|&at| tensor_type(&values[at])).collect();
        self.is_definition && facts(&step.wide, &types).is_some_and(|facts| facts.exact)
    }

    /// The dtype in which the graph stores what a node gives; `None` where the graph does not store it.
    pub fn dtype(&self, value: usize) -> Option<DType> {
        if self.is_definition {
            return None;
        }
        self.all.iter().find_map(|step| {
            let at = step.outputs.iter().position(|&own| own == value)?;
            step.given.outputs().iter().filter_map(DeclaredType::ty).nth(at).map(|ty| ty.dtype)
        })
    }
}

impl DefinitionStep {
    /// The values that it uses.
    pub fn take_operands(&self, values: &[Tensor]) -> Vec<Tensor> {
        self.inputs.iter().map(|&at| values[at].clone()).collect()
    }

    /// What it gives in `f64`.
    pub fn evaluate(
        &self,
        evaluator: &dyn Evaluator,
        values: &[Tensor],
        constants: &[bool],
    ) -> Result<Vec<Tensor>> {
        evaluator.evaluate(&self.wide, &self.take_operands(values), &self.constants(constants))
    }

    /// Which of the values that it uses are weights; `of_inputs` says so of the inputs of the call.
    pub fn constants(&self, of_inputs: &[bool]) -> Vec<bool> {
        self.inputs.iter().map(|&at| of_inputs.get(at).copied().unwrap_or(false)).collect()
    }
}
