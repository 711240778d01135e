//! Llama: pre-norm decoder with rotary positions, grouped-query attention and a SiLU-gated feed-forward layer.
//!
//! The template of all others: `block` parts have Llama's values where a family says nothing else. It
//! serves every checkpoint that calls itself `llama`, whoever trained it.

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

/// Touvron et al., "LLaMA", 2023; "The Llama 3 Herd of Models", 2024.
pub const LLAMA: Architecture = Architecture { model_types: &["llama"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("attention_bias", false)?;
    let attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp { bias: json.flag_or("mlp_bias", false)?, ..Mlp::llama(&sizes, activation) };
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
