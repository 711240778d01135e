//! StarCoder2: pre-norm decoder with biases, layer normalisation, rotary positions, grouped-query attention, where
//! configured within a window, and a feed-forward layer with GELU.

use super::{Architecture, Decoder};
use crate::block::activation::Activation;
use crate::block::attention::SelfAttention;
use crate::block::decoder::Frame;
use crate::block::layer::PreNorm;
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
    let defaults = Defaults { kv_heads: Some(2), context: 4096, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::layer(json, "norm_epsilon", 1e-5)?;
    let bias = json.flag_or("use_bias", true)?;
    let activation = Activation::read(json, "hidden_act", "gelu_pytorch_tanh")?;
    let mut attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    attention.scores.window = json.optional_size("sliding_window", 1..=1 << 26)?;
    let mlp = Mlp { bias, ..Mlp::plain(&sizes, activation, ["c_fc", "c_proj"]) };
    let layer = PreNorm { norm: norm.clone(), attention, mlp };

    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    let frame = Frame::llama(json, norm, true)?;
    frame.build(net, &sizes, |net, at, _, x| layer.apply(net, at, x, Some(angles)))
}
