//! Granite: Llama with factors on the embedding, on the scores, on what each layer adds and on the logits.
//!
//! A factor that is absent is 1. Logits are divided by theirs, all others multiply.

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

/// Granite Team, "Granite 3.0 Language Models", 2024, section 3.
pub const GRANITE: Architecture = Architecture { model_types: &["granite"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let factor = |key| json.number_or(key, 1.0, 1e-9..=1e9);
    let bias = json.flag_or("attention_bias", false)?;
    let mut attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    // The factor replaces the root of the head's size.
    attention.scores.scale = factor("attention_multiplier")? as f32;
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp { bias: json.flag_or("mlp_bias", false)?, ..Mlp::llama(&sizes, activation) };
    let layer = Layer {
        residual_scale: Some(factor("residual_multiplier")? as f32),
        ..Layer::new(sizes.hidden, &norm)
    };
    let frame = ModelFrame {
        embedding_scale: Some(factor("embedding_multiplier")? as f32),
        logits_scale: Some(factor("logits_scaling")?.recip() as f32),
        ..ModelFrame::llama(json, &norm, false)?
    };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
