//! What a definition is: steps in order, each an operator of the ONNX standard with the places of its operands.

use crate::graph::TensorType;
use crate::op::Foreign;
use crate::tensor::Tensor;

/// Where a step of a definition finds an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandSource {
    /// The input at this place of the operator.
    Input(usize),
    /// One of [`Definition::constants`].
    Constant(usize),
    /// The output of this step at this place.
    Step(usize, usize),
}

/// One operator of a definition.
#[derive(Clone, Debug)]
pub struct DefinitionStep {
    /// The operator, with the types of its outputs.
    pub op: Foreign,
    /// Where its inputs are, by their places.
    pub inputs: Vec<Option<OperandSource>>,
    /// Types of the inputs that are there, in order.
    pub types: Vec<TensorType>,
}

/// Operators that together compute what one operator of PyTorch does.
#[derive(Clone, Debug)]
pub struct Definition {
    /// In an order in which each finds its operands.
    pub steps: Vec<DefinitionStep>,
    /// Numbers, shapes and axes.
    pub constants: Vec<Tensor>,
    /// The outputs by their places; `None` where nobody asks for one.
    pub outputs: Vec<Option<OperandSource>>,
}
