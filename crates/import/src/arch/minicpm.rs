//! MiniCPM: Llama with factors on the embedding, on what each layer adds and on the logits.
//!
//! The factors are the paper's: `scale_depth / √layers` on what each half adds, `dim_model_base / hidden`
//! on the logits.

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

/// Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models", 2024, section 4.
pub const MINICPM: Architecture = Architecture { model_types: &["minicpm"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("attention_bias", false)?;
    let attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let depth = json.number_or("scale_depth", 1.0, 0.0..=1e6)? / f64::from(sizes.layers).sqrt();
    let layer = Layer { residual_scale: Some(depth as f32), ..Layer::new(sizes.hidden, &norm) };
    let base = json.number_or("dim_model_base", 1.0, 1e-6..=1e9)?;
    let frame = ModelFrame {
        embedding_scale: Some(json.number_or("scale_emb", 1.0, 0.0..=1e6)? as f32),
        logits_scale: Some((base / f64::from(sizes.hidden)) as f32),
        ..ModelFrame::llama(json, &norm, true)?
    };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}
