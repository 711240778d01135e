//! OLMo: Llama with layer normalisation without weights and, where configured, clipped queries, keys and values.
//!
//! The norm is `layer_norm` with an epsilon of 1e-5 that no key names. `clip_qkv` holds queries, keys and
//! values within ±clip before the rotation.

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

/// Groeneveld et al., "OLMo: Accelerating the Science of Language Models", 2024, section 2.1.
pub const OLMO: Architecture = Architecture { model_types: &["olmo"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::layer_of(1e-5).without_weights();
    let bias = json.flag_or("attention_bias", false)?;
    let clip = json.positive_or("clip_qkv", None)?;
    let attention = SelfAttention { bias, output_bias: bias, clip, ..SelfAttention::new(&sizes) };
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
