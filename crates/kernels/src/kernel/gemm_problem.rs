//! What an operator that multiplies rows by weights asks for, whichever kernel serves it.
//!
//! Planners for few rows, for tiles and for tensor cores begin with the same questions; the answers are here.

use super::source::{constant, weight_code};
use tapml_graph::{DType, Op, Packing, TensorType};

/// A product, or two and a gate, by the operator and the types of its inputs.
pub struct GemmProblem<'a> {
    /// All inputs of the operator, for the bias.
    inputs: &'a [TensorType],
    /// The rows.
    pub x: &'a TensorType,
    /// The first weight; all are of its type.
    pub weight: &'a TensorType,
    /// Whether there are two weights, the first for the gate.
    pub gated: bool,
    /// Row length of `x` and of the weights.
    pub k: u32,
    /// Rows of a weight.
    pub outputs: u32,
    /// What is chosen of the weights, if they are stacks.
    pub stack: Option<StackedExperts>,
}

/// Weights that are stacks of matrices, of which each row takes some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackedExperts {
    /// Matrices of a stack.
    pub count: u32,
    /// Those that a row takes.
    pub slots: u32,
    /// Whether they take the same input instead of one each.
    pub shared: bool,
}

/// Where the inputs of a product lie.
pub struct InputPlaces {
    /// Its weights.
    pub weights: Vec<usize>,
    /// Its bias, and how that is stored.
    pub bias: Option<(usize, DType)>,
}

impl<'a> GemmProblem<'a> {
    /// `None` for any other operator, and for sizes that are not constant.
    pub fn from_op(op: &Op, inputs: &'a [TensorType]) -> Option<GemmProblem<'a>> {
        let gated = match op {
            Op::Linear(_) => false,
            Op::GatedLinear(_) => true,
            _ => return None,
        };
        let [x, weight, ..] = inputs else { return None };
        let k = constant("the row length", x.shape.get(1)?).ok()?;
        let outputs = constant("the number of outputs", weight.shape.first()?).ok()?;
        Some(GemmProblem { inputs, x, weight, gated, k, outputs, stack: None })
    }

    /// As [`GemmProblem::from_op`] for the operators whose weights are stacks of matrices.
    pub fn of_stack(op: &Op, inputs: &'a [TensorType]) -> Option<GemmProblem<'a>> {
        let gated = match op {
            Op::ExpertLinear(_) => false,
            Op::ExpertGatedLinear(_) => true,
            _ => return None,
        };
        let [x, weight, ..] = inputs else { return None };
        let size = |ty: &TensorType, at| constant("a size", ty.shape.get(at)?).ok();
        let (count, outputs, k) = (size(weight, 0)?, size(weight, 1)?, size(weight, 2)?);
        let slots = size(inputs.get(if gated { 3 } else { 2 })?, 1)?;
        // An input of one row for each slot has a longer row than the weights take.
        let stack = Some(StackedExperts { count, slots, shared: size(x, 1)? == k });
        Some(GemmProblem { inputs, x, weight, gated, k, outputs, stack })
    }

    /// How the weights are packed, if they are.
    pub fn packing(&self) -> Option<Packing> {
        self.weight.dtype.packing()
    }

    /// The input that says which matrices are chosen, if weights are stacks.
    pub fn expert_ids_input(&self) -> Option<usize> {
        self.stack.map(|_| if self.gated { 3 } else { 2 })
    }

    /// Where the inputs lie; `None` for a bias that no kernel reads.
    pub fn places(&self) -> Option<InputPlaces> {
        let count = if self.gated { 2 } else { 1 };
        // The bias stands behind the weights, and behind the chosen experts where there are some.
        let after = 1 + count + usize::from(self.stack.is_some());
        let bias = self.inputs.get(after).map(|ty| (after, ty.dtype));
        let read = bias.is_none_or(|(_, dtype)| weight_code(dtype).is_ok());
        read.then(|| InputPlaces { weights: (1..=count).collect(), bias })
    }
}
