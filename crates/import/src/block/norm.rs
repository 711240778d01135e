//! Normalisation layers.
//!
//! RMS: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. Layer: Ba et al., "Layer
//! Normalization", 2016.

use crate::config::Section;
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{LayerNorm, RmsNorm};
use tapml_graph::{Op, Result, ValueId};

/// A normalisation of the columns of `x: [n, width]`, and which weights it has.
///
/// A value, not a node: one norm of a configuration is applied at many places, with weights of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    kind: NormKind,
    /// Whether there is a factor for each column.
    weight: bool,
    /// Whether there is something added to each column.
    bias: bool,
}

/// `offset` is added to the stored factor: 1 where checkpoints store it less 1.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NormKind {
    Rms { eps: f32, offset: f32 },
    Layer { eps: f32, offset: f32 },
}

/// How a norm over each head of its own is weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadWeights {
    /// `weight: [head_dim]`, the same for all heads.
    Shared,
    /// `weight: [heads, head_dim]`.
    Own,
    /// `norms.{head}.weight: [head_dim]`.
    Listed,
}

impl Norm {
    /// Root-mean-square normalisation with `weight`; its epsilon stands under `key`, or is `default` if that is absent.
    pub fn rms(json: &Section, key: &str, default: f64) -> Result<Norm> {
        Ok(Norm::rms_of(json.number_or(key, default, 0.0..=1.0)? as f32))
    }

    /// Root-mean-square normalisation with `weight`.
    pub fn rms_of(eps: f32) -> Norm {
        Norm { kind: NormKind::Rms { eps, offset: 0.0 }, weight: true, bias: false }
    }

    /// Normalisation to mean 0 and variance 1 with `weight` and `bias`; see [`Norm::rms`].
    pub fn layer(json: &Section, key: &str, default: f64) -> Result<Norm> {
        Ok(Norm::layer_of(json.number_or(key, default, 0.0..=1.0)? as f32))
    }

    /// Normalisation to mean 0 and variance 1 with `weight` and `bias`.
    pub fn layer_of(eps: f32) -> Norm {
        Norm { kind: NormKind::Layer { eps, offset: 0.0 }, weight: true, bias: true }
    }

    /// The same where the checkpoint stores the weights less 1.
    pub fn stored_less_one(mut self) -> Norm {
        let (NormKind::Rms { offset, .. } | NormKind::Layer { offset, .. }) = &mut self.kind;
        *offset = 1.0;
        self
    }

    /// The same without a bias.
    pub fn without_bias(self) -> Norm {
        Norm { bias: false, ..self }
    }

    /// The same without weight and bias.
    pub fn without_weights(self) -> Norm {
        Norm { weight: false, bias: false, ..self }
    }

    /// `x: [n, width]` normalised, with the weights of the module `at`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId, width: u32) -> Result<ValueId> {
        let mut inputs = vec![x];
        for (name, present) in [("weight", self.weight), ("bias", self.bias)] {
            if present {
                inputs.push(net.weight(&at.child(name), &[width])?);
            }
        }
        net.node(at, self.op(None), &inputs)
    }

    /// Each head of `x: [n, heads·head_dim]` normalised on its own.
    pub fn apply_to_heads(
        &self,
        net: &mut Net,
        at: &Path,
        x: ValueId,
        [heads, head_dim]: [u32; 2],
        weights: HeadWeights,
    ) -> Result<ValueId> {
        let mut inputs = vec![x];
        for (name, present) in [("weight", self.weight), ("bias", self.bias)] {
            if !present {
                continue;
            }
            inputs.push(match weights {
                HeadWeights::Shared => net.weight(&at.child(name), &[head_dim])?,
                HeadWeights::Own => net.weight(&at.child(name), &[heads, head_dim])?,
                HeadWeights::Listed => {
                    // Joined when it is loaded: an operator takes one tensor of weights.
                    let parts = (0..heads).map(|head| at.child("norms").child(head).child(name).to_string());
                    let source = Source::Stacked(parts.collect());
                    net.derive(&at.child("norms").child(name), &[heads, head_dim], source)?
                }
            });
        }
        net.node(at, self.op(Some(head_dim)), &inputs)
    }

    /// The operator; `group` columns are normalised together, all of them if none.
    fn op(&self, group: Option<u32>) -> Op {
        match self.kind {
            NormKind::Rms { eps, offset } => RmsNorm { eps, offset, group }.into(),
            NormKind::Layer { eps, offset } => LayerNorm { eps, offset, group }.into(),
        }
    }
}
