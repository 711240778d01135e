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
        Some(Asked { inputs, x, packing, gated, k, outputs })
    }

    /// The types of a weight's first arrays.
    pub fn stored(&self) -> (&'a TensorType, Option<&'a TensorType>) {
        (&self.inputs[1], self.inputs.get(2))
    }

    /// The inputs, if a weight is stored in so many arrays; `None` for a bias that no kernel reads.
    pub fn places(&self, arrays: usize) -> Option<Places> {
        let count = arrays * if self.gated { 2 } else { 1 };
        let bias = self.inputs.get(1 + count).map(|ty| (1 + count, ty.dtype));
        let read = bias.is_none_or(|(_, dtype)| weight_code(dtype).is_ok());
        read.then(|| Places { weights: (1..=count).collect(), bias })
    }
}
