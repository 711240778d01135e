//! Activation functions as configurations name them.
//!
//! The names are the keys of `ACT2FN` in Transformers that published models use.

use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{Gelu, GeluForm, Relu, ReluSquared, Sigmoid, Silu, Tanh};
use tapml_graph::{Op, Result, ValueId};

/// A name of configurations and what it means.
type ActivationRow = (&'static str, fn() -> Op);

/// The names of configurations.
const KNOWN: &[ActivationRow] = &[
    ("silu", || Silu {}.into()),
    ("swish", || Silu {}.into()),
    ("gelu", || Gelu { approximate: GeluForm::None }.into()),
    ("gelu_new", || Gelu { approximate: GeluForm::Tanh }.into()),
    // `gelu_fast` multiplies in another order than `gelu_new`; the function is the same.
    ("gelu_fast", || Gelu { approximate: GeluForm::Tanh }.into()),
    ("gelu_pytorch_tanh", || Gelu { approximate: GeluForm::Tanh }.into()),
    ("quick_gelu", || Gelu { approximate: GeluForm::Quick }.into()),
    ("relu", || Relu {}.into()),
    ("relu2", || ReluSquared {}.into()),
    ("sigmoid", || Sigmoid {}.into()),
    ("tanh", || Tanh {}.into()),
];

/// An activation function: an operator of one input.
///
/// Elementwise: shape and dtype of its input are those of its result.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivationOp(Op);

impl ActivationOp {
    /// This operator of one input.
    pub fn from_op(op: impl Into<Op>) -> ActivationOp {
        ActivationOp(op.into())
    }

    /// SiLU.
    pub fn silu() -> ActivationOp {
        ActivationOp(Silu {}.into())
    }

    /// GELU by tanh.
    pub fn tanh_gelu() -> ActivationOp {
        ActivationOp(Gelu { approximate: GeluForm::Tanh }.into())
    }

    /// The activation that `key` names, or `default` if the key is absent. Fails on a name that is not known.
    pub fn read(json: &Section, key: &str, default: &'static str) -> Result<ActivationOp> {
        let name = json.text_or(key, default)?;
        let found = KNOWN.iter().find(|(known, _)| *known == name);
        found.map(|(_, op)| ActivationOp(op())).ok_or_else(|| {
            let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            json.unsupported(key, &format!("activation `{name}` is not supported"))
                .with_hint(format!("supported: {}", known.join(", ")))
        })
    }

    /// The function of each element of `x`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
        net.node(at, self.0.clone(), &[x])
    }
}
