//! The nodes that a call of an operator of others runs: its own one, or those that a fused operator stands for.

use super::{Evaluator, facts, widened};
use std::collections::HashMap;
use tapml_graph::op::{Declared, Foreign};
use tapml_graph::{DType, Error, Graph, Op, Result, Tensor, TensorType, ValueId};

/// Nodes in their order. Values are numbered: the inputs of the call first, then what each node gives.
pub(super) struct Steps {
    pub all: Vec<Step>,
    /// Values that are the inputs of the call.
    pub inputs: usize,
    /// The values that the call gives.
    pub outputs: Vec<usize>,
    /// Their declared types, as far as they are declared.
    pub types: Vec<Option<TensorType>>,
}

/// One node.
pub(super) struct Step {
    /// As it stands in the graph.
    pub given: Foreign,
    /// With `f64` in the place of the floats that it declares.
    pub wide: Foreign,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

impl Steps {
    /// Of an operator of others with so many inputs, or of a fused one that stands for such.
    pub fn of(op: &Op, inputs: usize) -> Result<Steps> {
        match op {
            Op::Foreign(op) => {
                let types: Vec<_> =
                    op.outputs().iter().filter(|o| o.is_asked()).map(|o| o.ty().cloned()).collect();
                let outputs: Vec<usize> = (inputs..).take(types.len()).collect();
                let (given, wide) = (op.clone(), widened(op)?);
                let all = vec![Step { given, wide, inputs: (0..inputs).collect(), outputs: outputs.clone() }];
                Ok(Steps { all, inputs, outputs, types })
            }
            Op::Fused(fused) => Steps::of_body(fused.body()),
            _ => Err(Error::bug(format!("`{}` is no operator of others", op.name()))),
        }
    }

    fn of_body(body: &Graph) -> Result<Steps> {
        let mut numbers: HashMap<ValueId, usize> = body.inputs().map(|(id, _)| id).zip(0..).collect();
        let inputs = numbers.len();
        let mut all = Vec::new();
        for node in body.nodes() {
            let Op::Foreign(op) = &node.op else {
                let text = format!("`{}` stands beside operators of others", node.op.name());
                return Err(Error::unsupported(text));
            };
            let taken = node.inputs.iter().map(|value| numbers[value]).collect();
            for &value in &node.outputs {
                numbers.insert(value, numbers.len());
            }
            let outputs = node.outputs.iter().map(|value| numbers[value]).collect();
            all.push(Step { given: op.clone(), wide: widened(op)?, inputs: taken, outputs });
        }
        let results = || body.outputs().iter().map(|output| output.value);
        let types = results().map(|value| Some(body.value(value).ty.clone())).collect();
        Ok(Steps { all, inputs, outputs: results().map(|value| numbers[&value]).collect(), types })
    }

    /// Whether all that happens is exact.
    pub fn are_exact(&self, inputs: &[TensorType]) -> bool {
        let mut types: Vec<TensorType> = inputs.to_vec();
        self.all.iter().all(|step| {
            let own: Vec<TensorType> = step.inputs.iter().filter_map(|&at| types.get(at).cloned()).collect();
            types.extend(step.given.outputs().iter().filter_map(Declared::ty).cloned());
            facts(&step.given, &own).is_some_and(|facts| facts.exact)
        })
    }

    /// All values in `f64`. `constants` says of each input whether it is a weight.
    pub fn evaluate(
        &self,
        evaluator: &dyn Evaluator,
        inputs: &[Tensor],
        constants: &[bool],
    ) -> Result<Vec<Tensor>> {
        let mut values = inputs.to_vec();
        for step in &self.all {
            values.extend(step.evaluate(evaluator, &values, constants)?);
        }
        Ok(values)
    }

    /// All values in the dtypes that the nodes declare.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut values = inputs.to_vec();
        for step in &self.all {
            values.extend(super::evaluate(&step.given, &step.taken(&values))?);
        }
        Ok(values)
    }

    /// Whether a node uses what another gives.
    pub fn hands_on(&self) -> bool {
        self.all.iter().flat_map(|step| &step.inputs).any(|&value| value >= self.inputs)
    }

    /// The dtype in which the graph stores what a node gives.
    pub fn dtype(&self, value: usize) -> Option<DType> {
        self.all.iter().find_map(|step| {
            let at = step.outputs.iter().position(|&own| own == value)?;
            step.given.outputs().iter().filter_map(Declared::ty).nth(at).map(|ty| ty.dtype)
        })
    }
}

impl Step {
    /// The values that it uses.
    pub fn taken(&self, values: &[Tensor]) -> Vec<Tensor> {
        self.inputs.iter().map(|&at| values[at].clone()).collect()
    }

    /// What it gives in `f64`.
    pub fn evaluate(
        &self,
        evaluator: &dyn Evaluator,
        values: &[Tensor],
        constants: &[bool],
    ) -> Result<Vec<Tensor>> {
        evaluator.evaluate(&self.wide, &self.taken(values), &self.constants(constants))
    }

    /// Which of the values that it uses are weights; `of_inputs` says so of the inputs of the call.
    pub fn constants(&self, of_inputs: &[bool]) -> Vec<bool> {
        self.inputs.iter().map(|&at| of_inputs.get(at).copied().unwrap_or(false)).collect()
    }
}
