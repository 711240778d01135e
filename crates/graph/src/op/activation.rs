//! The activations that fused operators apply to a projection.

use super::{Gelu, GeluForm, Op, Relu, ReluSquared, Sigmoid, Silu, Softplus, Tanh};
use serde::{Deserialize, Serialize};

/// An element-wise operator as an attribute of a fused one, under the operator's own formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// [`Silu`].
    #[default]
    Silu,
    /// [`Gelu`] of [`GeluForm::None`].
    Gelu,
    /// [`Gelu`] of [`GeluForm::Tanh`].
    GeluTanh,
    /// [`Gelu`] of [`GeluForm::Quick`].
    GeluQuick,
    /// [`Relu`].
    Relu,
    /// [`ReluSquared`].
    ReluSquared,
    /// [`Sigmoid`].
    Sigmoid,
    /// [`Tanh`].
    Tanh,
    /// [`Softplus`].
    Softplus,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Activation; 9] = [
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::GeluQuick,
        Activation::Relu,
        Activation::ReluSquared,
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Softplus,
    ];

    /// The operator that this activation is.
    pub fn op(self) -> Op {
        let gelu = |approximate| Gelu { approximate }.into();
        match self {
            Activation::Silu => Silu {}.into(),
            Activation::Gelu => gelu(GeluForm::None),
            Activation::GeluTanh => gelu(GeluForm::Tanh),
            Activation::GeluQuick => gelu(GeluForm::Quick),
            Activation::Relu => Relu {}.into(),
            Activation::ReluSquared => ReluSquared {}.into(),
            Activation::Sigmoid => Sigmoid {}.into(),
            Activation::Tanh => Tanh {}.into(),
            Activation::Softplus => Softplus {}.into(),
        }
    }

    /// The activation that an operator is, if it is one.
    pub fn from_op(op: &Op) -> Option<Activation> {
        Activation::ALL.into_iter().find(|activation| activation.op() == *op)
    }
}
