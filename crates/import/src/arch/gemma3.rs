//! Gemma-3 (the text model): Gemma-2 with a norm for each head instead of a soft cap on scores; five of six layers see a
//! sliding window and rotate by frequencies of their own.
//!
//! A multimodal checkpoint (`gemma3`) holds the text model under `text_config`, its weights below
//! `language_model.`. The vision tower is not read; its tensors count as unused.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{QueryKeyNorm, SelfAttention};
use crate::block::decoder::{ModelFrame, LLAMA};
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::{HeadWeights, Norm};
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::RopeAngles;

/// Gemma Team, "Gemma 3 Technical Report", 2025, section 2; the multimodal checkpoints hold the text model as a part.
pub const GEMMA3: Architecture = Architecture { model_types: &["gemma3_text", "gemma3"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    // The configuration of the text model alone has its keys at the top.
    match json.section("text_config")? {
        Some(text) => build_text(&text, net, "language_model."),
        None => build_text(json, net, ""),
    }
}

fn build_text(json: &Section<'_>, mut net: Net<'_>, prefix: &str) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(4), head_dim: Some(256), context: 1 << 17, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?.stored_less_one();
    let bias = json.flag_or("attention_bias", false)?;
    let heads = QueryKeyNorm::of_heads(["q_norm", "k_norm"], &norm, HeadWeights::Shared);
    let mut attention =
        SelfAttention { bias, output_bias: bias, norm: Some(heads), ..SelfAttention::new(&sizes) };
    let scalar = json.number_or("query_pre_attn_scalar", 256.0, 1e-6..=1e9)?;
    attention.scores.scale = scalar.sqrt().recip() as f32;
    attention.scores.softcap = json.positive_or("attn_logit_softcapping", None)?;
    let window = json.size_or("sliding_window", 4096, 1..=1 << 26)?;
    let pattern = json.size_or("sliding_window_pattern", 6, 1..=1 << 12)?;
    // Five layers of six, the sixth sees everything.
    let local = windows::local_layers(json, sizes.layers, |index| !(index + 1).is_multiple_of(pattern))?;
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_activation", "gelu_pytorch_tanh")?);
    let layer = Layer {
        before: Some(["input_layernorm", "pre_feedforward_layernorm"]),
        after: Some(["post_attention_layernorm", "post_feedforward_layernorm"]),
        ..Layer::new(sizes.hidden, &norm)
    };
    let frame = ModelFrame {
        embedding_scale: Some(f64::from(sizes.hidden).sqrt() as f32),
        logits_cap: json.positive_or("final_logit_softcapping", None)?,
        ..ModelFrame::with_prefix(json, &norm, true, prefix, LLAMA)?
    };
    let [of_all, of_window] = angles(json, &sizes)?;
    let of_all = net.node(&Path::new(format!("{prefix}model.rotary_emb")), of_all, &[])?;
    let of_window = net.node(&Path::new(format!("{prefix}model.rotary_emb_local")), of_window, &[])?;
    frame.build(net, &sizes, |net, at, index, x| {
        let local = local[index as usize];
        attention.scores.window = local.then_some(window);
        let angles = if local { of_window } else { of_all };
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, Some(angles));
        layer.apply(net, at, x, attend, |net, at, x| mlp.apply(net, at, x))
    })
}

/// The angles of layers that see all positions and of those that see a window. Older configurations give the base of
/// the latter by a key of its own; what scales the former leaves it alone.
fn angles(json: &Section, sizes: &Sizes) -> Result<[RopeAngles; 2]> {
    let of_kind = |kind| rope::layer_angles(json, kind, sizes.head_dim, sizes.context);
    let all = match of_kind("full_attention")? {
        Some(angles) => angles,
        None => rope::angles(json, sizes.head_dim, sizes.context)?,
    };
    let base = json.number_or("rope_local_base_freq", 10_000.0, 1.0..=1e12)?;
    let window = of_kind("sliding_attention")?.unwrap_or_else(|| rope::unscaled_angles(base, sizes.head_dim));
    Ok([all, window])
}
