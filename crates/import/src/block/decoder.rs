//! The frame of a decoder: token embedding, layers, final norm and language-model head.

use super::norm::Norm;
use super::sizes::Sizes;
use crate::arch::Decoder;
use crate::config::Section;
use crate::net::{Net, Path};
use crate::options::Rows;
use tapml_graph::op::{Embedding, LastRow, Linear};
use tapml_graph::{DType, Result, ValueId};

/// What stands around the layers, with the names of the modules.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The embedding table.
    pub embedding: Path,
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
}

impl Frame {
    /// Llama's names; tied if `tie_word_embeddings` says so, or if it is absent and `tied`.
    pub fn llama(json: &Section, norm: Norm, tied: bool) -> Result<Frame> {
        Ok(Frame {
            embedding: Path::new("model.embed_tokens"),
            layers: Path::new("model.layers"),
            norm: (Path::new("model.norm"), norm),
            head: Path::new("lm_head"),
            tied: json.flag_or("tie_word_embeddings", tied)?,
            head_bias: false,
        })
    }

    /// The whole decoder. `layer` adds one layer: its module, its number and what enters it, to what leaves it.
    pub fn build(
        &self,
        mut net: Net<'_>,
        sizes: &Sizes,
        mut layer: impl FnMut(&mut Net, &Path, u32, ValueId) -> Result<ValueId>,
    ) -> Result<Decoder> {
        let ids = net.ids()?;
        let table = net.weight(&self.embedding.at("weight"), &[sizes.vocab, sizes.hidden])?;
        let embedding = Embedding { dtype: net.activation() };
        let mut x = net.node(&self.embedding, embedding, &[ids, table])?;
        net.hidden(x);
        for index in 0..sizes.layers {
            x = layer(&mut net, &self.layers.at(index), index, x)?;
            net.hidden(x);
        }
        let (at, norm) = &self.norm;
        let x = norm.apply(&mut net, at, x, sizes.hidden)?;
        let logits = self.logits(&mut net, x, sizes)?;
        Decoder::finish(net, logits, sizes)
    }

    /// Logits in f32 of the wanted rows of `x: [n, hidden]`.
    fn logits(&self, net: &mut Net, x: ValueId, sizes: &Sizes) -> Result<ValueId> {
        let x = match net.rows() {
            Rows::All => x,
            Rows::Last => net.node(&self.head.at("last_row"), LastRow {}, &[x])?,
        };
        let matrix = if self.tied { &self.embedding } else { &self.head };
        let mut inputs = vec![x, net.weight(&matrix.at("weight"), &[sizes.vocab, sizes.hidden])?];
        if self.head_bias {
            inputs.push(net.weight(&self.head.at("bias"), &[sizes.vocab])?);
        }
        let dtype = (net.activation() != DType::F32).then_some(DType::F32);
        net.node(&self.head, Linear { dtype }, &inputs)
    }
}
