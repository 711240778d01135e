//! Gemma: Llama with heads wider than their share, norms stored less 1, a scaled embedding and a GELU gate.
//!
//! A factor of a norm is stored as its difference to 1. `head_dim` is a key of its own: heads are wider
//! than `hidden_size / num_attention_heads`.

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

/// Gemma Team, "Gemma: Open Models Based on Gemini Research and Technology", 2024.
pub const GEMMA: Architecture = Architecture { model_types: &["gemma"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { head_dim: Some(256), context: 8192, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?.stored_less_one();
    let bias = json.flag_or("attention_bias", false)?;
    let attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let mlp = Mlp::llama(&sizes, activation(json)?);
    let layer = Layer::new(sizes.hidden, &norm);
    let frame = ModelFrame {
        // The root of the width: Gemma's embeddings are trained at this scale.
        embedding_scale: Some(f64::from(sizes.hidden).sqrt() as f32),
        ..ModelFrame::llama(json, &norm, true)?
    };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}

/// GELU by tanh, whatever form of GELU is named: the models were trained with it, older configurations say `gelu`.
///
/// Whichever key is there, plain `gelu` alone is replaced.
fn activation(json: &Section) -> Result<ActivationOp> {
    const TANH: &str = "gelu_pytorch_tanh";
    let newer = json.get("hidden_activation").is_some();
    let key = if newer { "hidden_activation" } else { "hidden_act" };
    match json.text_or(key, TANH)? {
        "gelu" => Ok(ActivationOp::tanh_gelu()),
        _ => ActivationOp::read(json, key, TANH),
    }
}
