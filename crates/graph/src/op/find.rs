//! Operators by their names: plain ones, fused ones, and those of others. What is asked of any of them.

use super::{DeclaredType, Foreign, Fused, OPS, Op, OpInfo, Sample};
use crate::dim::Symbols;
use crate::error::{Error, Result};
use crate::fusion;
use crate::known_names::known_names;
use crate::tensor_type::TensorType;

impl Op {
    /// Whether it is an operator of others, or a fused one that stands for such: nobody but their evaluation knows it.
    pub fn is_foreign(&self) -> bool {
        match self {
            Op::Foreign(_) => true,
            Op::Fused(fused) => fused.body().nodes().iter().any(|node| node.op.is_foreign()),
            _ => false,
        }
    }

    /// Text that tells this operator from any other on the same types of inputs: name, attributes, and what the node declares of
    /// an operator of others, such as the sizes that a slice leaves.
    pub fn identity(&self) -> String {
        let declared = match self {
            // Their outputs are declared by the node and do not follow from the inputs.
            Op::Foreign(op) => format!(" {:?} {:?}", op.inputs(), op.outputs()),
            _ => String::new(),
        };
        format!("{}{}{declared}", self.name(), self.attributes_text())
    }

    /// The operator of this name with these attributes.
    pub fn parse(name: &str, attributes: serde_json::Value) -> Result<Op> {
        if let Some(fusion) = fusion::find(name) {
            return Fused::parse(fusion, &attributes.to_string()).map(Op::Fused);
        }
        (info(name)?.parse)(attributes).map_err(|e| Error::invalid(format!("attributes of `{name}`: {e}")))
    }

    /// The operator of this name with attributes as [`Op::attributes_text`] gives them.
    pub fn parse_text(name: &str, attributes: &str) -> Result<Op> {
        if let Some(fusion) = fusion::find(name) {
            return Fused::parse(fusion, attributes).map(Op::Fused);
        }
        (info(name)?.parse_text)(attributes).map_err(|e| {
            let text = e.to_string();
            // The place within the attributes would be taken for one in the graph's text.
            let place = format!(" at line {} column {}", e.line(), e.column());
            let text = text.strip_suffix(&place).unwrap_or(&text);
            Error::invalid(format!("attributes of `{name}`: {text}"))
        })
    }

    /// As [`Op::parse_text`], of a node with these places of inputs and outputs: those of an operator of others belong to it.
    /// Any other operator has no places that are not taken.
    pub fn parse_node(
        name: &str,
        attributes: &str,
        inputs: Vec<bool>,
        outputs: Vec<DeclaredType>,
    ) -> Result<Op> {
        if Foreign::is_kind(name) {
            return Foreign::parse(name, attributes, inputs, outputs).map(Op::Foreign);
        }
        // Only operators of others have optional inputs and outputs.
        if inputs.contains(&false) || !outputs.iter().all(DeclaredType::is_asked) {
            let text = format!("`{name}` takes all its inputs and outputs, found `_`");
            return Err(Error::invalid(text).with_hint("write a value that is named `_` as \"_\""));
        }
        Op::parse_text(name, attributes)
    }

    /// The types of the outputs when the symbols have these values: every size becomes constant.
    pub fn infer_bound(&self, inputs: &[TensorType], symbols: &Symbols) -> Result<Vec<TensorType>> {
        self.infer(inputs)?.iter().map(|t| t.bind(symbols)).collect()
    }
}

/// The row of an operator.
///
/// # Errors
/// Of kind `Unsupported` if there is none of this name.
fn info(name: &str) -> Result<&'static OpInfo> {
    OPS.iter().find(|i| i.name == name).ok_or_else(|| {
        let error = Error::unsupported(format!("unknown operator `{}`", name.escape_debug()));
        error.with_hint(if name.starts_with("quantized_") {
            "types say how weights are packed: carve the suite, or quantise the checkpoint, again".into()
        } else {
            known_names(name, names())
        })
    })
}

/// The names of all operators: those of [`OPS`], then those of [`fusion::FUSIONS`].
pub fn names() -> impl Iterator<Item = &'static str> {
    OPS.iter().map(|op| op.name).chain(fusion::FUSIONS.iter().map(|fusion| fusion.name))
}

/// The sample cases of the operator of this name; none if there is no such operator.
pub fn samples_of(name: &str) -> Vec<Sample> {
    let plain = OPS.iter().find(|op| op.name == name).map(|op| op.samples);
    let samples = plain.or_else(|| fusion::find(name).map(|fusion| fusion.samples));
    samples.map(|samples| samples()).unwrap_or_default()
}
