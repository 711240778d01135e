//! A call of an operator of others, and the test of what follows from a changed one.
//!
//! The oracles evaluate the changed operator in `f64`. In a region the result goes through the nodes behind it before it is compared.

use super::known;
use crate::Cause;
use crate::fit::Score;
use crate::output_view::{Out, Prediction};
use crate::trials::{Rank, Trials};
use serde_json::{Map, Value};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{DType, Op, Tensor};
use tapml_reference::foreign::widened_tensor;

/// The call at hand, with its floats in `f64`.
pub(super) struct ForeignSubject {
    /// The operator with its attributes.
    pub op: Foreign,
    /// Inputs that are given, in the order of their places.
    pub inputs: Vec<Tensor>,
    /// Whether each input is a weight.
    pub constants: Vec<bool>,
}

/// What is assumed: why, in words, and when it shows.
///
/// It is consumed by the test, which adds it to the trials.
pub(super) struct Assumed {
    /// What it is called.
    pub cause: Cause,
    /// How much it assumes.
    pub rank: Rank,
    /// A clause of the evidence.
    pub note: String,
    /// When the fault shows, as a condition; see [`crate::Explanation::rule`].
    pub rule: String,
}

impl ForeignSubject {
    /// `None` if the operator is not of others, or has inputs that are no numbers.
    pub fn from_trials(trials: &Trials<'_, '_>) -> Option<ForeignSubject> {
        let call = trials.context.evidence.call;
        let Op::Foreign(op) = &call.op else { return None };
        let inputs: Vec<Tensor> =
            call.inputs.iter().map(|t| widened_tensor(t).ok()).collect::<Option<_>>()?;
        let constants = call.weights.iter().map(Option::is_some).collect();
        Some(ForeignSubject { op: op.clone(), inputs, constants })
    }

    /// The input at a place of the operator: its index among those that are given.
    pub fn index(&self, place: usize) -> Option<usize> {
        let there = self.op.inputs().get(place)?;
        there.then(|| self.op.inputs()[..place].iter().filter(|&&there| there).count())
    }

    /// The place of an input.
    fn place(&self, index: usize) -> usize {
        let there = self.op.inputs().iter().enumerate().filter(|(_, there)| **there);
        there.map(|(place, _)| place).nth(index).unwrap_or(index)
    }

    /// The name of an input, for people.
    pub fn name(&self, index: usize) -> String {
        let place = self.place(index);
        match known::input_name(&self.op, place) {
            Some(name) => format!("the input `{name}`"),
            None => format!("input {place}"),
        }
    }

    /// The operator with other attributes.
    pub fn with_attributes(&self, attributes: Map<String, Value>) -> Option<Foreign> {
        // Types of outputs may depend on the attributes, so they are asked for anew.
        let (inputs, outputs) = (self.op.inputs().to_vec(), undeclared_outputs(&self.op));
        Foreign::new(self.op.kind(), attributes, inputs, outputs).ok()
    }

    /// Tests what the operator gives with other attributes.
    pub fn test_attributes(
        &self,
        trials: &mut Trials<'_, '_>,
        assumed: Assumed,
        attributes: Map<String, Value>,
    ) -> Score {
        let Some(op) = self.with_attributes(attributes) else { return Score::NONE };
        self.test(trials, assumed, &op, &self.inputs, &self.constants)
    }

    /// Tests what the operator gives with another input.
    pub fn test_input(
        &self,
        trials: &mut Trials<'_, '_>,
        assumed: Assumed,
        index: usize,
        input: Tensor,
    ) -> Score {
        let mut inputs = self.inputs.clone();
        inputs[index] = input;
        self.test_inputs(trials, assumed, inputs)
    }

    /// Tests what the operator gives with other inputs.
    pub fn test_inputs(&self, trials: &mut Trials<'_, '_>, assumed: Assumed, inputs: Vec<Tensor>) -> Score {
        let Some(op) = self.op.with_outputs(undeclared_outputs(&self.op)).ok() else { return Score::NONE };
        self.test(trials, assumed, &op, &inputs, &self.constants)
    }

    /// Tests what another operator gives with other inputs.
    pub fn test(
        &self,
        trials: &mut Trials<'_, '_>,
        assumed: Assumed,
        op: &Foreign,
        inputs: &[Tensor],
        constants: &[bool],
    ) -> Score {
        match evaluate(trials, op, inputs, constants) {
            Some(outputs) => self.test_outputs(trials, assumed, &outputs),
            None => Score::NONE,
        }
    }

    /// Tests what follows if the operator gives these outputs.
    /// In a region they are handed to the nodes behind, whose result is compared.
    pub fn test_outputs(&self, trials: &mut Trials<'_, '_>, assumed: Assumed, outputs: &[Tensor]) -> Score {
        let outs = &trials.context.full.outs;
        let prediction = match trials.context.evidence.after {
            None => Some(self.in_shape(outs, outputs)),
            Some(after) => self
                .with_declared_sizes(outputs)
                .and_then(|own| after.run(&own))
                .map(|found| found.iter().map(Tensor::to_f64).collect::<Prediction>())
                // Nodes behind may give other sizes for a changed value; then nothing can be compared.
                .filter(|found| found.iter().map(Vec::len).eq(outs.iter().map(|out| out.exact.len()))),
        };
        match prediction {
            Some(prediction) => {
                trials.add_with_rule(assumed.cause, assumed.rank, assumed.note, assumed.rule, &prediction)
            }
            None => Score::NONE,
        }
    }

    /// Outputs with the declared sizes, for the nodes behind; see [`ForeignSubject::in_shape`].
    fn with_declared_sizes(&self, outputs: &[Tensor]) -> Option<Vec<Tensor>> {
        let types = self.op.outputs().iter().filter_map(DeclaredType::ty);
        let fitted = outputs.iter().zip(types).map(|(found, ty)| {
            let sizes = ty.shape.iter().map(|size| Some(size.as_const()? as usize));
            let shape: Vec<usize> = sizes.collect::<Option<_>>()?;
            if found.shape() == shape {
                return Some(found.clone());
            }
            numbers(found.dtype(), &shape, &in_shape(found, &shape))
        });
        fitted.collect()
    }

    /// Outputs as a runtime hands them on that plans its buffers from the declared types: cropped, or with zeros behind.
    fn in_shape(&self, outs: &[Out], outputs: &[Tensor]) -> Prediction {
        let declared = self.op.outputs().iter().filter_map(DeclaredType::ty);
        let shapes =
            declared.map(|ty| ty.shape.iter().filter_map(|d| d.as_const()).map(|d| d as usize).collect());
        let shapes: Vec<Vec<usize>> = shapes.collect();
        let fitted = outs.iter().enumerate().map(|(i, out)| match (outputs.get(i), shapes.get(i)) {
            (Some(found), Some(shape)) => in_shape(found, shape),
            _ => out.exact.clone(),
        });
        fitted.collect()
    }
}

/// The exact outputs of a changed call; `None` if the operator refuses it, or if no work is left.
pub(super) fn evaluate(
    trials: &mut Trials<'_, '_>,
    op: &Foreign,
    inputs: &[Tensor],
    constants: &[bool],
) -> Option<Vec<Tensor>> {
    trials.spend()?;
    trials.context.oracles?.evaluate(op, inputs, constants).ok()
}

/// The outputs that are asked for, of types that whoever evaluates the operator tells.
pub(super) fn undeclared_outputs(op: &Foreign) -> Vec<DeclaredType> {
    let declare = |declared: &DeclaredType| match declared {
        // An output that nobody asks for is not computed.
        DeclaredType::Absent => DeclaredType::Absent,
        _ => DeclaredType::Unknown,
    };
    op.outputs().iter().map(declare).collect()
}

/// The values of a tensor cropped to a shape, or filled up with zeros; those of another rank in their order.
/// Axes are compared from the last to the first; a place beyond the own size of an axis holds zero.
fn in_shape(tensor: &Tensor, shape: &[usize]) -> Vec<f64> {
    let values = tensor.to_f64();
    let own = tensor.shape();
    if own == shape {
        return values;
    }
    // Of another rank only the order of the elements is known.
    let len = shape.iter().product();
    if own.len() != shape.len() {
        return values.into_iter().chain(std::iter::repeat(0.0)).take(len).collect();
    }
    let at = |flat: usize| {
        let (mut rest, mut from, mut stride) = (flat, 0, 1);
        for (&size, &own) in shape.iter().zip(own).rev() {
            let place = rest % size;
            rest /= size;
            if place >= own {
                return 0.0;
            }
            from += place * stride;
            stride *= own;
        }
        values[from]
    };
    (0..len).map(at).collect()
}

/// A tensor of the same dtype and shape with other values.
pub(super) fn like(tensor: &Tensor, values: &[f64]) -> Option<Tensor> {
    numbers(tensor.dtype(), tensor.shape(), values)
}

/// A tensor of floats in `f64` or of integers; `None` for other dtypes.
/// Numbers become integers by truncation.
pub(super) fn numbers(dtype: DType, shape: &[usize], values: &[f64]) -> Option<Tensor> {
    match dtype {
        DType::F64 => Tensor::from_f64(DType::F64, shape.to_vec(), values).ok(),
        // No hypothesis changes truth values.
        DType::Bool => None,
        dtype => {
            let values: Vec<i64> = values.iter().map(|&v| v as i64).collect();
            Tensor::from_i64(dtype, shape.to_vec(), &values).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_other_sizes_are_cropped_and_filled_up() {
        let values: Vec<f32> = (1..=6u8).map(f32::from).collect();
        let tensor = Tensor::from_f32(vec![2, 3], values).unwrap();
        assert_eq!(in_shape(&tensor, &[2, 3]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(in_shape(&tensor, &[1, 2]), [1.0, 2.0]);
        assert_eq!(in_shape(&tensor, &[3, 2]), [1.0, 2.0, 4.0, 5.0, 0.0, 0.0]);
        assert_eq!(in_shape(&tensor, &[4]), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(in_shape(&tensor, &[]), [1.0]);
    }
}
