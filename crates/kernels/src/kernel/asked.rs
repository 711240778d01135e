//! What an operator that multiplies rows by weights asks for, whichever kernel serves it.

use super::source::{constant, weight_code};
use tapml_graph::op::Packing;
use tapml_graph::{DType, Op, TensorType};

/// A product, or two and a gate, by the operator and the types of its inputs.
pub struct Asked<'a> {
    inputs: &'a [TensorType],
    /// The rows.
    pub x: &'a TensorType,
    /// How weights are packed, if they are.
    pub packing: Option<Packing>,
    /// Whether there are two weights, the first for the gate.
    pub gated: bool,
    /// Row length of `x` and of the weights.
    pub k: u32,
    /// Rows of a weight.
    pub outputs: u32,
    /// What is chosen of the weights, if they are stacks.
    pub stack: Option<Stack>,
}

/// Weights that are stacks of matrices, of which each row takes some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Matrices of a stack.
    pub count: u32,
    /// Those that a row takes.
    pub slots: u32,
    /// Whether they take the same input instead of one each.
    pub shared: bool,
}

/// Where the inputs of a product lie.
pub struct Places {
    /// Those that make up its weights.
    pub weights: Vec<usize>,
    /// Its bias, and how that is stored.
    pub bias: Option<(usize, DType)>,
}

impl<'a> Asked<'a> {
    /// `None` for any other operator, and for sizes that are not constant.
    pub fn of(op: &Op, inputs: &'a [TensorType]) -> Option<Asked<'a>> {
        let (packing, gated) = match op {
            Op::Linear(_) => (None, false),
            Op::GatedLinear(_) => (None, true),
            Op::QuantizedLinear(op) => (Some(op.packing()), false),
            Op::QuantizedGatedLinear(op) => (Some(op.packing()), true),
            _ => return None,
        };
        let [x, weight, ..] = inputs else { return None };
        let k = constant("the row length", x.shape.get(1)?).ok()?;
        let outputs = constant("the number of outputs", weight.shape.first()?).ok()?;
        Some(Asked { inputs, x, packing, gated, k, outputs, stack: None })
    }

    /// As [`Asked::of`] for the operators whose weights are stacks of matrices.
    pub fn of_stack(op: &Op, inputs: &'a [TensorType]) -> Option<Asked<'a>> {
        let (packing, gated) = match op {
            Op::ExpertLinear(_) => (None, false),
            Op::ExpertGatedLinear(_) => (None, true),
            Op::QuantizedExpertLinear(op) => (Some(op.packing()), false),
            Op::QuantizedExpertGatedLinear(op) => (Some(op.packing()), true),
            _ => return None,
        };
        let [x, weight, ..] = inputs else { return None };
        let size = |ty: &TensorType, at| constant("a size", ty.shape.get(at)?).ok();
        let (count, outputs) = (size(weight, 0)?, size(weight, 1)?);
        let k = size(weight, 2)?.checked_mul(packing.map_or(1, |p| p.per_word()))?;
        let arrays = packing.map_or(1, |p| p.parts());
        let slots = size(inputs.get(1 + if gated { 2 * arrays } else { arrays })?, 1)?;
        let stack = Some(Stack { count, slots, shared: size(x, 1)? == k });
        Some(Asked { inputs, x, packing, gated, k, outputs, stack })
    }

    /// The types of a weight's first arrays.
    pub fn stored(&self) -> (&'a TensorType, Option<&'a TensorType>) {
        (&self.inputs[1], self.inputs.get(2))
    }

    /// The input that says which matrices are chosen, if weights are stacks that are stored in so many arrays each.
    pub fn chosen(&self, arrays: usize) -> Option<usize> {
        self.stack.map(|_| 1 + arrays * if self.gated { 2 } else { 1 })
    }

    /// The inputs, if a weight is stored in so many arrays; `None` for a bias that no kernel reads.
    pub fn places(&self, arrays: usize) -> Option<Places> {
        let count = arrays * if self.gated { 2 } else { 1 };
        let after = 1 + count + usize::from(self.stack.is_some());
        let bias = self.inputs.get(after).map(|ty| (after, ty.dtype));
        let read = bias.is_none_or(|(_, dtype)| weight_code(dtype).is_ok());
        read.then(|| Places { weights: (1..=count).collect(), bias })
    }
}
