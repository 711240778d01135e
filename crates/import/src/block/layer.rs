//! Decoder layers: attention and a feed-forward layer, each added to what enters it, with norms around them.
//!
//! The residual stream is `[n, hidden]` throughout. Every node and norm is named below the layer's module.

use super::norm::Norm;
use crate::net::{Net, Path};
use tapml_graph::op::{Add, Scale};
use tapml_graph::{Result, ValueId};

/// How attention and feed-forward layer follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The feed-forward layer takes the sum of the layer's input and attention.
    Sequential,
    /// Both take the layer's input.
    Parallel,
}

/// The structure of a decoder layer, with the names of its modules.
///
/// Pre-norm, post-norm and both are told apart by `before` and `after`.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Columns of the residual stream.
    pub hidden: u32,
    /// All norms are of this kind.
    pub norm: Norm,
    /// Names of the norms before attention and before the feed-forward layer. Both may be one.
    pub before: Option<[&'static str; 2]>,
    /// Names of the norms of what attention and the feed-forward layer give.
    pub after: Option<[&'static str; 2]>,
    /// Names of attention and feed-forward layer.
    pub modules: [&'static str; 2],
    /// Factor on what both give.
    pub residual_scale: Option<f32>,
    /// How they follow each other.
    pub order: Order,
}

impl Layer {
    /// Llama's.
    pub fn new(hidden: u32, norm: &Norm) -> Layer {
        Layer {
            hidden,
            norm: norm.clone(),
            before: Some(["input_layernorm", "post_attention_layernorm"]),
            after: None,
            modules: ["self_attn", "mlp"],
            residual_scale: None,
            order: Order::Sequential,
        }
    }

    /// What leaves the layer for `x: [n, hidden]`. `attend` and `feed` add attention and the feed-forward layer: the
    /// module and what enters it, to what leaves it.
    pub fn apply(
        &self,
        net: &mut Net,
        at: &Path,
        x: ValueId,
        attend: impl FnOnce(&mut Net, &Path, ValueId) -> Result<ValueId>,
        feed: impl FnOnce(&mut Net, &Path, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let normed = self.enter(net, at, x, 0)?;
        let y = attend(net, &at.child(self.modules[0]), normed)?;
        let y = self.leave(net, at, y, 0)?;
        // In both orders attention is added first, so that a parallel layer keeps one sum per half.
        let sum = net.node(&at.child("add_attention"), Add {}, &[x, y])?;
        // One norm for both halves is computed once.
        let shared = self.before.is_none_or(|[first, second]| first == second);
        let y = match self.order {
            Order::Sequential => self.enter(net, at, sum, 1)?,
            Order::Parallel if shared => normed,
            Order::Parallel => self.enter(net, at, x, 1)?,
        };
        let y = feed(net, &at.child(self.modules[1]), y)?;
        let y = self.leave(net, at, y, 1)?;
        net.node(&at.child("add_mlp"), Add {}, &[sum, y])
    }

    /// What enters attention (`which` 0) or the feed-forward layer (1): normalised if there is a norm
    /// before it.
    fn enter(&self, net: &mut Net, at: &Path, x: ValueId, which: usize) -> Result<ValueId> {
        match self.before {
            Some(names) => self.norm.apply(net, &at.child(names[which]), x, self.hidden),
            None => Ok(x),
        }
    }

    /// What is added to the stream: normalised, then scaled, where the family does so.
    fn leave(&self, net: &mut Net, at: &Path, y: ValueId, which: usize) -> Result<ValueId> {
        let y = match self.after {
            Some(names) => self.norm.apply(net, &at.child(names[which]), y, self.hidden)?,
            None => y,
        };
        match self.residual_scale {
            Some(factor) => {
                net.node(&at.child(["scale_attention", "scale_mlp"][which]), Scale { factor }, &[y])
            }
            None => Ok(y),
        }
    }
}
