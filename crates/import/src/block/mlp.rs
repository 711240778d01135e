//! Feed-forward layers.

use super::linear::{Projection, linear};
use crate::net::{Net, Path};
use tapml_graph::op::{Gelu, Mul, Silu};
use tapml_graph::{Result, ValueId};

/// Sizes of a feed-forward layer.
#[derive(Clone, Copy, Debug)]
pub struct Mlp {
    /// Columns of input and output.
    pub hidden: u32,
    /// Columns between.
    pub intermediate: u32,
    /// Whether the projections add biases.
    pub bias: bool,
}

/// `down(silu(gate(x)) · up(x))` for `x: [n, hidden]`.
pub fn gated_silu(net: &mut Net, at: &Path, x: ValueId, size: Mlp) -> Result<ValueId> {
    let Mlp { hidden, intermediate, bias } = size;
    let into = Projection { inputs: hidden, outputs: intermediate, bias };
    let out = Projection { inputs: intermediate, outputs: hidden, bias };
    let gate = linear(net, &at.at("gate_proj"), x, into)?;
    let gate = net.node(&at.at("act_fn"), Silu {}, &[gate])?;
    let up = linear(net, &at.at("up_proj"), x, into)?;
    let product = net.node(&at.at("mul"), Mul {}, &[gate, up])?;
    linear(net, &at.at("down_proj"), product, out)
}

/// `out(gelu(into(x)))` for `x: [n, hidden]`; `names` are those of the projections `into` and `out`.
pub fn gelu(
    net: &mut Net,
    at: &Path,
    x: ValueId,
    size: Mlp,
    names: [&str; 2],
    activation: Gelu,
) -> Result<ValueId> {
    let Mlp { hidden, intermediate, bias } = size;
    let [into, out] = names;
    let y = linear(net, &at.at(into), x, Projection { inputs: hidden, outputs: intermediate, bias })?;
    let y = net.node(&at.at("act"), activation, &[y])?;
    linear(net, &at.at(out), y, Projection { inputs: intermediate, outputs: hidden, bias })
}
