//! Gemma-2: Gemma with norms before and after attention and feed-forward layer, soft caps on scores and logits, and a
//! sliding window in every other layer.
//!
//! Scores are divided by the root of `query_pre_attn_scalar`, which need not be the size of a head. A cap
//! of `null` is no cap.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024, section 2.
pub const GEMMA2: Architecture = Architecture { model_types: &["gemma2"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(4), head_dim: Some(256), context: 8192, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?.stored_less_one();
    let bias = json.flag_or("attention_bias", false)?;
    let mut attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let scalar = json.number_or("query_pre_attn_scalar", 256.0, 1e-6..=1e9)?;
    attention.scores.scale = scalar.sqrt().recip() as f32;
    attention.scores.softcap = json.positive_or("attn_logit_softcapping", Some(50.0))?;
    let window = json.size_or("sliding_window", 4096, 1..=1 << 26)?;
    // Layers 0, 2, 4 and so on see the window.
    let local = windows::local_layers(json, sizes.layers, |index| index.is_multiple_of(2))?;
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_activation", "gelu_pytorch_tanh")?);
    let layer = Layer {
        before: Some(["input_layernorm", "pre_feedforward_layernorm"]),
        after: Some(["post_attention_layernorm", "post_feedforward_layernorm"]),
        ..Layer::new(sizes.hidden, &norm)
    };
    let frame = ModelFrame {
        embedding_scale: Some(f64::from(sizes.hidden).sqrt() as f32),
        logits_cap: json.positive_or("final_logit_softcapping", Some(30.0))?,
        ..ModelFrame::llama(json, &norm, true)?
    };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.build(net, &sizes, |net, at, index, x| {
        attention.scores.window = local[index as usize].then_some(window);
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, Some(angles));
        layer.apply(net, at, x, attend, |net, at, x| mlp.apply(net, at, x))
    })
}
