//! StarCoder2: pre-norm decoder with biases, layer normalisation, rotary positions, grouped-query attention, where
//! configured within a window, and a feed-forward layer with GELU.
//!
//! The head is tied by default; the feed-forward layer has two projections.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Lozhkov et al., "StarCoder 2 and The Stack v2", 2024.
pub const STARCODER2: Architecture = Architecture { model_types: &["starcoder2"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(2), context: 4096, ..Defaults::LLAMA })?;
    let norm = Norm::layer(json, "norm_epsilon", 1e-5)?;
    let bias = json.flag_or("use_bias", true)?;
    let mut attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    attention.scores.window = json.optional_size("sliding_window", 1..=1 << 26)?;
    let activation = ActivationOp::read(json, "hidden_act", "gelu_pytorch_tanh")?;
    let mlp = Mlp { bias, ..Mlp::plain(&sizes, activation, ["c_fc", "c_proj"]) };
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, true)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
