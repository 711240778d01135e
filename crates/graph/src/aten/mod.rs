//! What PyTorch's operators stand for: each is defined by operators of the ONNX standard, as a fused operator is by plain ones. One
//! definition gives both its exact evaluation and its kernels. Names and meanings are those of
//! <https://docs.pytorch.org/docs/stable/torch.compiler_ir.html> and of the functions of the same names.

mod arguments;
mod arithmetic;
mod builder;
mod definition;
mod list;
mod movement;
mod products;
mod reduction;
mod windows;

use crate::dtype::DType;
use crate::error::{Context, Error, Result};
use crate::graph::TensorType;
use crate::op::{DeclaredType, Foreign};
use arguments::Arguments;
use builder::{Builder, Operand};

pub use definition::{Definition, DefinitionStep, OperandSource};

/// The domain of these operators.
pub const DOMAIN: &str = "aten";

/// The names of all operators that have a definition.
pub fn names() -> impl Iterator<Item = &'static str> {
    list::ROWS.iter().map(|row| row.name)
}

/// The name of the input at a place of an operator, as its schema has it; `None` in a list of tensors, and for an operator that
/// has no definition. A number in the place of a tensor is an attribute, and no input.
pub fn input_name(op: &Foreign, place: usize) -> Option<&'static str> {
    let row = list::ROWS.iter().find(|row| op.domain() == DOMAIN && row.name == op.name())?;
    // Behind a list of tensors places have no fixed name.
    let names = row.tensors.iter().copied().take_while(|name| !name.starts_with('*'));
    names.filter(|name| !op.attributes().contains_key(*name)).nth(place)
}

/// What an operator stands for on inputs of these types, which stand at their places. Floats of the definition have the dtype of
/// the inputs, so that it holds in `f64` as well.
///
/// # Errors
/// Of kind `Unsupported` if the operator has no definition, or none for such arguments. Of kind `InvalidInput` if its arguments
/// do not fit, or if it declares other outputs than it has.
pub fn define(op: &Foreign, inputs: &[Option<TensorType>]) -> Result<Definition> {
    let found = list::ROWS.iter().find(|row| op.domain() == DOMAIN && row.name == op.name());
    let row = found.ok_or_else(|| Error::unsupported(format!("`{}` has no definition", op.kind())))?;
    let define = || {
        let mut builder = Builder::new(op, inputs)?;
        let arguments = Arguments::new(op, row.tensors, &builder)?;
        let outputs = (row.define)(&mut builder, &arguments)?;
        // After the definition, because only then it is known what it read.
        arguments.expect_all_read()?;
        let mut sources = Vec::new();
        for (place, declared) in op.outputs().iter().enumerate() {
            // An operator may declare fewer outputs than its definition gives.
            let given = outputs.get(place);
            let source = match declared {
                DeclaredType::Absent => None,
                _ => Some(
                    given.ok_or_else(|| Error::unsupported(format!("output {place} has no definition")))?,
                ),
            };
            if let (Some(ty), Some(given)) = (declared.ty(), source)
                && !is_declared(ty, given)
            {
                return Err(Error::invalid(format!(
                    "output {place} is declared {ty}, expected {}",
                    given.ty()
                )));
            }
            sources.push(source.map(|operand| operand.source));
        }
        Ok(builder.finish(sources))
    };
    define().context(|| format!("`{}`", op.kind()))
}

/// Whether an output is of the declared type. In an evaluation in `f64` no float is stored in less.
fn is_declared(declared: &TensorType, given: &Operand) -> bool {
    // Shapes are the same in every precision.
    let widened = declared.dtype == DType::F64 && given.dtype.is_float();
    (declared.dtype == given.dtype || widened) && declared.shape == given.ty().shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ty(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape.iter().copied())
    }

    fn op(kind: &str, attributes: serde_json::Value, inputs: usize, output: TensorType) -> Foreign {
        let attributes = attributes.as_object().unwrap().clone();
        Foreign::new(kind, attributes, vec![true; inputs], vec![DeclaredType::As(output)]).unwrap()
    }

    fn kinds(op: &Foreign, inputs: &[TensorType]) -> Result<Vec<&'static str>> {
        let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
        Ok(define(op, &inputs)?.steps.iter().map(|step| step.op.kind()).collect())
    }

    #[test]
    fn every_name_stands_once() {
        let mut all: Vec<&str> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(count >= 100, "{count}");
    }

    #[test]
    fn a_linear_layer_is_one_product() {
        let linear = op("aten.linear.default", json!({}), 3, ty(&[2, 3, 5]));
        let found = kinds(&linear, &[ty(&[2, 3, 4]), ty(&[5, 4]), ty(&[5])]).unwrap();
        assert_eq!(found, ["onnx.Reshape@14", "onnx.Gemm@13", "onnx.Reshape@14"]);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let x = ty(&[2, 3]);
        for (kind, attributes, output, told) in [
            ("aten.relu.default", json!({"alpha": 1}), x.clone(), "`alpha`"),
            ("aten.relu.default", json!({}), ty(&[3, 2]), "is declared f32[3,2]"),
            ("aten.permute.default", json!({"dims": [0, 0]}), x.clone(), "dims"),
            ("aten.view.default", json!({"size": [-1, 4]}), x.clone(), "[-1, 4]"),
            ("aten._softmax.default", json!({"dim": 2, "half_to_float": false}), x.clone(), "axis 2"),
            ("aten.no_such.default", json!({}), x.clone(), "no definition"),
        ] {
            let error = kinds(&op(kind, attributes, 1, output), std::slice::from_ref(&x)).unwrap_err();
            let text = format!("{error:?} {error}");
            assert!(text.contains(told), "{kind}: {text}");
        }
        // A size that no tensor has must be refused, not made.
        let wide = op("aten.full.default", json!({"size": [1u64 << 40, 1 << 30], "fill_value": 1.0}), 0, x);
        assert!(kinds(&wide, &[]).is_err());
    }

    #[test]
    fn hostile_arguments_are_refused() {
        let number = ty(&[]);
        let wide = ty(&[1 << 30, 1]);
        for (kind, attributes, inputs) in [
            ("aten.cat.default", json!({"tensors": {"tensors": 1}}), vec![number.clone()]),
            ("aten.cat.default", json!({"tensors": {"tensors": 1u64 << 60}}), vec![number.clone()]),
            ("aten.split.Tensor", json!({"split_size": 1}), vec![number.clone()]),
            ("aten.slice.Tensor", json!({}), vec![number.clone()]),
            ("aten.select.int", json!({"dim": 0, "index": 0}), vec![number.clone()]),
            ("aten.repeat.default", json!({"repeats": [1u64 << 40, 1u64 << 40]}), vec![number.clone()]),
            ("aten.arange.start_step", json!({"start": 0, "end": 9, "step": 0}), vec![]),
            ("aten.conv2d.default", json!({"groups": i64::MAX}), vec![ty(&[1, 2, 3, 3]), ty(&[2, 2, 1, 1])]),
            ("aten.group_norm.default", json!({"num_groups": i64::MAX}), vec![ty(&[2, 0])]),
            (
                "aten.scaled_dot_product_attention.default",
                json!({"is_causal": true}),
                vec![wide.clone(), wide.clone(), wide.clone()],
            ),
            (
                "aten.upsample_nearest2d.vec",
                json!({"output_size": [32767, 32767]}),
                vec![ty(&[1000, 1000, 1, 1])],
            ),
        ] {
            assert!(kinds(&op(kind, attributes, inputs.len(), number.clone()), &inputs).is_err(), "{kind}");
        }
    }
}
