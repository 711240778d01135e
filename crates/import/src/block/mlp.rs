//! Feed-forward layers.
//!
//! Shazeer, "GLU Variants Improve Transformer", 2020, describes the gated forms.

use super::activation::ActivationOp;
use super::linear::{Projection, linear};
use super::sizes::Sizes;
use crate::net::{Net, Path};
use tapml_graph::op::{Columns, Mul};
use tapml_graph::{Result, ValueId};

/// How a feed-forward layer is put together, with the names of its projections.
///
/// The activation stands on the gate's side in both gated forms.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// `down(act(gate(x)) · up(x))`.
    Gated {
        /// Names of `gate`, `up` and `down`.
        names: [&'static str; 3],
    },
    /// As [`Form::Gated`] with one projection for gate and up, the gate's columns first.
    Fused {
        /// Names of the fused projection and of `down`.
        names: [&'static str; 2],
    },
    /// `out(act(into(x)))`.
    Plain {
        /// Names of `into` and `out`.
        names: [&'static str; 2],
    },
}

/// A feed-forward layer.
#[derive(Clone, Debug)]
pub struct Mlp {
    /// Columns of input and output.
    pub hidden: u32,
    /// Columns between.
    pub intermediate: u32,
    /// Whether the projections add biases.
    pub bias: bool,
    /// Whether the checkpoint holds the matrices as `[inputs, outputs]`.
    pub transposed: bool,
    /// The activation.
    pub activation: ActivationOp,
    /// Structure and names.
    pub form: Form,
}

impl Mlp {
    /// Llama's: gated, no biases.
    pub fn llama(sizes: &Sizes, activation: ActivationOp) -> Mlp {
        let form = Form::Gated { names: ["gate_proj", "up_proj", "down_proj"] };
        Mlp::new(sizes, activation, form)
    }

    /// Two projections of these names with biases.
    pub fn plain(sizes: &Sizes, activation: ActivationOp, names: [&'static str; 2]) -> Mlp {
        Mlp { bias: true, ..Mlp::new(sizes, activation, Form::Plain { names }) }
    }

    /// One of this form without biases.
    pub fn new(sizes: &Sizes, activation: ActivationOp, form: Form) -> Mlp {
        let Sizes { hidden, intermediate, .. } = *sizes;
        Mlp { hidden, intermediate, bias: false, transposed: false, activation, form }
    }

    /// The layer's result for `x: [n, hidden]`: `[n, hidden]`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId) -> Result<ValueId> {
        let width = self.intermediate;
        let into = self.projection(self.hidden, width);
        let (between, out) = match self.form {
            Form::Gated { names: [gate, up, down] } => {
                let gate = linear(net, &at.child(gate), x, into)?;
                let gate = self.activation.apply(net, &at.child("act_fn"), gate)?;
                let up = linear(net, &at.child(up), x, into)?;
                (net.node(&at.child("mul"), Mul {}, &[gate, up])?, down)
            }
            Form::Fused { names: [fused, down] } => {
                let both = linear(net, &at.child(fused), x, self.projection(self.hidden, 2 * width))?;
                let part = |first| Columns { group: 2 * width, first, count: width };
                let gate = net.node(&at.child("gate"), part(0), &[both])?;
                let gate = self.activation.apply(net, &at.child("act_fn"), gate)?;
                let up = net.node(&at.child("up"), part(width), &[both])?;
                (net.node(&at.child("mul"), Mul {}, &[gate, up])?, down)
            }
            Form::Plain { names: [name, out] } => {
                let y = linear(net, &at.child(name), x, into)?;
                (self.activation.apply(net, &at.child("act"), y)?, out)
            }
        };
        linear(net, &at.child(out), between, self.projection(width, self.hidden))
    }

    /// One of the layer's matrices with the layer's own bias and layout.
    fn projection(&self, inputs: u32, outputs: u32) -> Projection {
        Projection { inputs, outputs, bias: self.bias, transposed: self.transposed }
    }
}
