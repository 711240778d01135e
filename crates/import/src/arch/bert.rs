//! BERT: an encoder with learned positions and norms after each sum. It gives the last hidden states and, if the
//! checkpoint has a pooler, the pooled output.
//!
//! The graph has no logits and no states. Attention sees all positions of the text, and norms follow the
//! sums (post-norm).

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::linear::{Projection, linear};
use crate::block::mlp::{Form, Mlp};
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{Add, Attention, Embedding, LayerNorm, Positions, Rows, Tanh};
use tapml_graph::{Result, ValueId};

/// Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018, section 3.
pub const BERT: Architecture = Architecture { model_types: &["bert"], build };

/// The pooler's projection.
const POOLER: &str = "pooler.dense";

/// Fails on relative positions and on decoders, whose graphs are others.
fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    let form = json.text_or("position_embedding_type", "absolute")?;
    if form != "absolute" {
        let text = format!("positions of the kind `{form}` are not supported");
        return Err(json.unsupported("position_embedding_type", &text));
    }
    if json.flag_or("is_decoder", false)? {
        return Err(json.unsupported("is_decoder", "BERT as a decoder is not supported"));
    }
    let sizes = Sizes::read(json, &Defaults { context: 512, ..Defaults::LLAMA })?;
    let eps = json.number_or("layer_norm_eps", 1e-12, 0.0..=1.0)? as f32;
    let attention = attention(&sizes);
    let activation = ActivationOp::read(json, "hidden_act", "gelu")?;
    let form = Form::Plain { names: ["intermediate.dense", "output.dense"] };
    let mlp = Mlp { bias: true, ..Mlp::new(&sizes, activation, form) };
    let types = json.size_or("type_vocab_size", 2, 1..=1 << 10)?;

    // Checkpoints with a head, such as that of masked language models, keep the encoder below `bert.`.
    let below = net.holds("bert.embeddings.word_embeddings.weight");
    let mut net = net.with_prefix(if below { "bert." } else { "" });
    let x = embed(&mut net, &sizes, types)?;
    // The embedding is normalised too; it counts as the first hidden state.
    let mut x = norm(&mut net, &Path::new("embeddings.LayerNorm"), x, sizes.hidden, eps)?;
    net.hidden(x);
    for index in 0..sizes.layers {
        let at = Path::new("encoder.layer").child(index);
        let y = attention.apply(&mut net, &at.child("attention"), x, None)?;
        let sum = net.node(&at.child("add_attention"), Add {}, &[x, y])?;
        x = norm(&mut net, &at.child("attention.output.LayerNorm"), sum, sizes.hidden, eps)?;
        let y = mlp.apply(&mut net, &at, x)?;
        let sum = net.node(&at.child("add_mlp"), Add {}, &[x, y])?;
        x = norm(&mut net, &at.child("output.LayerNorm"), sum, sizes.hidden, eps)?;
        net.hidden(x);
    }
    net.output("hidden", x);
    if net.holds(&format!("{POOLER}.weight")) {
        let at = Path::new(POOLER);
        // The pooler reads the first row, that of `[CLS]`.
        let first = net.node(&Path::new("pooler.first"), Rows { first: 0, count: 1 }, &[x])?;
        let y = linear(&mut net, &at, first, Projection::new(sizes.hidden, sizes.hidden, true))?;
        let pooled = net.node(&Path::new("pooler.activation"), Tanh {}, &[y])?;
        net.output("pooled", pooled);
    }
    Decoder::from_net(net, &sizes)
}

/// Self-attention with the checkpoint's names, without a causal mask and with biases.
fn attention(sizes: &Sizes) -> SelfAttention {
    let plain = SelfAttention::new(sizes);
    SelfAttention {
        projections: Projections::Split { names: ["self.query", "self.key", "self.value"] },
        bias: true,
        output: "output.dense",
        output_bias: true,
        scores: Attention { causal: false, ..plain.scores },
        ..plain
    }
}

/// The sum of the embeddings of words, positions and the first segment: `[n, hidden]`. Texts of two segments are not
/// told apart.
fn embed(net: &mut Net, sizes: &Sizes, types: u32) -> Result<ValueId> {
    let (at, dtype) = (Path::new("embeddings"), net.activation());
    let table = |net: &mut Net, name: &str, ids, rows| {
        let at = at.child(name);
        let table = net.weight(&at.child("weight"), &[rows, sizes.hidden])?;
        net.node(&at, Embedding { dtype }, &[ids, table])
    };
    let ids = net.ids()?;
    let words = table(net, "word_embeddings", ids, sizes.vocab)?;
    let positions = net.node(&at.child("positions"), Positions { offset: 0 }, &[])?;
    let positions = table(net, "position_embeddings", positions, sizes.context)?;
    let x = net.node(&at.child("add_positions"), Add {}, &[words, positions])?;
    let matrix = at.child("token_type_embeddings.weight");
    let source = Source::RowOf { matrix: matrix.to_string(), count: types as usize, index: 0 };
    let segment = net.derive(&matrix.child("first"), &[sizes.hidden], source)?;
    net.node(&at.child("add_segment"), Add {}, &[x, segment])
}

/// Layer normalisation of `x: [n, width]`. The first checkpoints name weight and bias as its authors did.
fn norm(net: &mut Net, at: &Path, x: ValueId, width: u32, eps: f32) -> Result<ValueId> {
    let mut inputs = vec![x];
    for (name, older) in [("weight", "gamma"), ("bias", "beta")] {
        let (name, older) = (at.child(name), at.child(older));
        let found = net.holds(&name.to_string()) || !net.holds(&older.to_string());
        inputs.push(net.weight(if found { &name } else { &older }, &[width])?);
    }
    net.node(at, LayerNorm { eps, offset: 0.0, group: None }, &inputs)
}
