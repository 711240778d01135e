//! The frame of a decoder: token embedding, layers, final norm and language-model head.
//!
//! [`ModelFrame`] holds what may differ, as data; an architecture changes fields and hands a closure for
//! its layers. Names of modules are those of the checkpoint, because weights are found by them.

use super::attention::SelfAttention;
use super::layer::Layer;
use super::mlp::Mlp;
use super::norm::Norm;
use super::sizes::Sizes;
use crate::arch::Decoder;
use crate::config::Section;
use crate::net::{Net, Path};
use crate::options::LogitRows;
use crate::source::Source;
use tapml_graph::op::{Add, Embedding, LastRow, Linear, Positions, Scale, Softcap};
use tapml_graph::{DType, Result, ValueId};

/// A matrix of one row per position that is added to the token embedding.
#[derive(Clone, Debug)]
pub struct LearnedPositions {
    /// Its module.
    pub at: Path,
    /// Rows.
    pub count: u32,
}

/// Llama's names of the embedding table, the list of layers, the final norm and the head.
///
/// Most families of the Hugging Face hub keep these names.
pub const LLAMA: [&str; 4] = ["model.embed_tokens", "model.layers", "model.norm", "lm_head"];

/// What stands around the layers, with the names of the modules.
#[derive(Clone, Debug)]
pub struct ModelFrame {
    /// The embedding table.
    pub embedding: Path,
    /// Factor on the embedding.
    pub embedding_scale: Option<f32>,
    /// Learned positions.
    pub positions: Option<LearnedPositions>,
    /// The list of layers.
    pub layers: Path,
    /// The final norm.
    pub norm: (Path, Norm),
    /// The head, whose matrix is the embedding table if `tied`.
    pub head: Path,
    /// Whether the head has no matrix of its own.
    pub tied: bool,
    /// Whether the head adds a bias.
    pub head_bias: bool,
    /// Whether each row of the head's matrix is divided by its length.
    pub unit_head: bool,
    /// Factor on the logits.
    pub logits_scale: Option<f32>,
    /// Soft cap on the logits, after the factor.
    pub logits_cap: Option<f32>,
}

impl ModelFrame {
    /// Llama's names; tied if `tie_word_embeddings` says so, or if it is absent and `tied`.
    pub fn llama(json: &Section, norm: &Norm, tied: bool) -> Result<ModelFrame> {
        ModelFrame::with_names(json, norm, tied, LLAMA)
    }

    /// One with these names of the embedding table, the list of layers, the final norm and the head.
    pub fn with_names(json: &Section, norm: &Norm, tied: bool, names: [&str; 4]) -> Result<ModelFrame> {
        ModelFrame::with_prefix(json, norm, tied, "", names)
    }

    /// As [`ModelFrame::with_names`] with `prefix` before each name: where a language model is a part of another one.
    ///
    /// # Errors
    /// If `tie_word_embeddings` is no truth value.
    pub fn with_prefix(
        json: &Section,
        norm: &Norm,
        tied: bool,
        prefix: &str,
        names: [&str; 4],
    ) -> Result<ModelFrame> {
        let [embedding, layers, final_norm, head] = names.map(|name| Path::new(format!("{prefix}{name}")));
        Ok(ModelFrame {
            embedding,
            embedding_scale: None,
            positions: None,
            layers,
            norm: (final_norm, norm.clone()),
            head,
            tied: json.flag_or("tie_word_embeddings", tied)?,
            head_bias: false,
            unit_head: false,
            logits_scale: None,
            logits_cap: None,
        })
    }

    /// The whole decoder. `layer` adds one layer: its module, its number and what enters it, to what leaves it.
    ///
    /// # Errors
    /// If a node does not fit its inputs, which sizes that contradict each other cause.
    pub fn build(
        &self,
        mut net: Net<'_>,
        sizes: &Sizes,
        mut layer: impl FnMut(&mut Net, &Path, u32, ValueId) -> Result<ValueId>,
    ) -> Result<Decoder> {
        let mut x = self.enter(&mut net, sizes)?;
        // What Transformers lists first in `hidden_states`: the input of the first layer.
        net.hidden(x);
        for index in 0..sizes.layers {
            x = layer(&mut net, &self.layers.child(index), index, x)?;
            net.hidden(x);
        }
        let (at, norm) = &self.norm;
        let x = norm.apply(&mut net, at, x, sizes.hidden)?;
        let logits = self.logits(&mut net, x, sizes)?;
        Decoder::finish(net, logits, sizes)
    }

    /// The whole decoder if all layers are alike, rotated by `angles` if there are some.
    pub fn uniform(
        &self,
        net: Net<'_>,
        sizes: &Sizes,
        layer: &Layer,
        attention: &SelfAttention,
        mlp: &Mlp,
        angles: Option<ValueId>,
    ) -> Result<Decoder> {
        self.build(net, sizes, |net, at, _, x| {
            let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, angles);
            layer.apply(net, at, x, attend, |net, at, x| mlp.apply(net, at, x))
        })
    }

    /// What enters the first layer: `[n, hidden]`.
    fn enter(&self, net: &mut Net, sizes: &Sizes) -> Result<ValueId> {
        let ids = net.ids()?;
        let dtype = net.activation();
        let table = net.weight(&self.embedding.child("weight"), &[sizes.vocab, sizes.hidden])?;
        let mut x = net.node(&self.embedding, Embedding { dtype }, &[ids, table])?;
        // Before the image: its rows come from the projector at their own scale.
        if let Some(factor) = self.embedding_scale {
            x = net.node(&self.embedding.child("scale"), Scale { factor }, &[x])?;
        }
        x = net.merge_image(&self.embedding.child("merge_image"), x)?;
        if let Some(LearnedPositions { at, count }) = &self.positions {
            let table = net.weight(&at.child("weight"), &[*count, sizes.hidden])?;
            let positions = net.node(&at.child("positions"), Positions { offset: 0 }, &[])?;
            let learned = net.node(at, Embedding { dtype }, &[positions, table])?;
            x = net.node(&at.child("add"), Add {}, &[x, learned])?;
        }
        Ok(x)
    }

    /// Logits in f32 of the wanted rows of `x: [n, hidden]`.
    fn logits(&self, net: &mut Net, x: ValueId, sizes: &Sizes) -> Result<ValueId> {
        // The last row is cut out before the head, whose product is the largest of the model.
        let x = match net.rows() {
            LogitRows::All => x,
            LogitRows::Last => net.node(&self.head.child("last_row"), LastRow {}, &[x])?,
        };
        // A tied head reads the table under the table's name, so that there is one weight.
        let matrix = if self.tied { &self.embedding } else { &self.head };
        let (name, shape) = (matrix.child("weight"), [sizes.vocab, sizes.hidden]);
        let matrix = if self.unit_head {
            net.derive(&name, &shape, Source::UnitRows(name.to_string()))?
        } else {
            net.weight(&name, &shape)?
        };
        let mut inputs = vec![x, matrix];
        if self.head_bias {
            inputs.push(net.weight(&self.head.child("bias"), &[sizes.vocab])?);
        }
        // Logits in f32 even for f16 activations: sampling compares numbers that lie close together.
        let dtype = (net.activation() != DType::F32).then_some(DType::F32);
        let mut logits = net.node(&self.head, Linear { dtype }, &inputs)?;
        if let Some(factor) = self.logits_scale {
            logits = net.node(&self.head.child("scale"), Scale { factor }, &[logits])?;
        }
        if let Some(cap) = self.logits_cap {
            logits = net.node(&self.head.child("softcap"), Softcap { cap }, &[logits])?;
        }
        Ok(logits)
    }
}
