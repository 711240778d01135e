//! GPT-J: decoder whose attention and feed-forward layer stand side by side behind one layer normalisation, with rotation
//! of neighbouring pairs in a part of each head and GELU.
//!
//! Queries, keys, values and the output projection have no biases; the feed-forward layer and the head
//! have.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::{Layer, Order};
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Wang and Komatsuzaki, "GPT-J-6B", 2021.
pub const GPTJ: Architecture = Architecture { model_types: &["gptj"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { intermediate: Some(4), ..Defaults::LLAMA })?;
    let norm = Norm::layer(json, "layer_norm_epsilon", 1e-5)?;
    let attention =
        SelfAttention { output: "out_proj", interleaved: true, ..SelfAttention::new(&sizes) };
    let activation = ActivationOp::read(json, "activation_function", "gelu_new")?;
    let mlp = Mlp::plain(&sizes, activation, ["fc_in", "fc_out"]);
    let layer = Layer {
        before: Some(["ln_1"; 2]),
        modules: ["attn", "mlp"],
        order: Order::Parallel,
        ..Layer::new(sizes.hidden, &norm)
    };
    let names = ["transformer.wte", "transformer.h", "transformer.ln_f", "lm_head"];
    let frame = ModelFrame { head_bias: true, ..ModelFrame::with_names(json, &norm, false, names)? };
    // The rotated elements are the first of each head.
    let rotary_dim = json.size_or("rotary_dim", 64, 2..=sizes.head_dim)?;
    let angles = rope::angles(json, rotary_dim, sizes.context)?;
    let angles = net.node(&Path::new("transformer.rotary_emb"), angles, &[])?;
    frame.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
