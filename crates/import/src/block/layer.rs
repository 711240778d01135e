//! Decoder layers in the shapes that several architectures share.

use super::attention::SelfAttention;
use super::mlp::Mlp;
use super::norm::Norm;
use crate::net::{Net, Path};
use tapml_graph::op::Add;
use tapml_graph::{Result, ValueId};

/// Attention, then a feed-forward layer, each on the normalised sum of what came before.
#[derive(Clone, Debug)]
pub struct PreNorm {
    /// The norm before each.
    pub norm: Norm,
    /// Attention, of the module `self_attn`.
    pub attention: SelfAttention,
    /// The feed-forward layer, of the module `mlp`.
    pub mlp: Mlp,
}

impl PreNorm {
    /// What leaves the layer for `x: [n, hidden]`, rotated by `angles` if there are some.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId, angles: Option<ValueId>) -> Result<ValueId> {
        let width = self.attention.hidden;
        let y = self.norm.apply(net, &at.at("input_layernorm"), x, width)?;
        let y = self.attention.apply(net, &at.at("self_attn"), y, angles)?;
        let x = net.node(&at.at("add_attention"), Add {}, &[x, y])?;
        let y = self.norm.apply(net, &at.at("post_attention_layernorm"), x, width)?;
        let y = self.mlp.apply(net, &at.at("mlp"), y)?;
        net.node(&at.at("add_mlp"), Add {}, &[x, y])
    }
}
