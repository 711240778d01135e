//! Llama: pre-norm decoder with rotary positions, grouped-query attention and a SiLU-gated feed-forward layer.

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

/// Touvron et al., "LLaMA", 2023; "The Llama 3 Herd of Models", 2024.
pub const LLAMA: Architecture = Architecture { model_types: &["llama"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("attention_bias", false)?;
    let activation = Activation::read(json, "hidden_act", "silu")?;
    let layer = PreNorm {
        norm: norm.clone(),
        attention: SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) },
        mlp: Mlp { bias: json.flag_or("mlp_bias", false)?, ..Mlp::gated(&sizes, activation) },
    };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    let frame = Frame::llama(json, norm, false)?;
    frame.build(net, &sizes, |net, at, _, x| layer.apply(net, at, x, Some(angles)))
}
