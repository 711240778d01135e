//! Cohere2 (Command R7B): Cohere in which three of four layers are rotated and see a sliding window; the others see all
//! positions and rotate nothing.
//!
//! The layers repeat in blocks of `sliding_window_pattern`, of which the last sees everything.
//! `layer_types` wins where it is there.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::{Layer, Order};
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Cohere, "Command A: An Enterprise-Ready Large Language Model", 2025, section 2.
pub const COHERE2: Architecture = Architecture { model_types: &["cohere2"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { context: 8192, ..Defaults::LLAMA })?;
    let norm = Norm::layer(json, "layer_norm_eps", 1e-5)?.without_bias();
    let bias = json.flag_or("attention_bias", false)?;
    let mut attention =
        SelfAttention { bias, output_bias: bias, interleaved: true, ..SelfAttention::new(&sizes) };
    let window = json.size_or("sliding_window", 4096, 1..=1 << 26)?;
    let pattern = json.size_or("sliding_window_pattern", 4, 1..=1 << 12)?;
    let local = windows::local_layers(json, sizes.layers, |index| !(index + 1).is_multiple_of(pattern))?;
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer {
        before: Some(["input_layernorm"; 2]),
        order: Order::Parallel,
        ..Layer::new(sizes.hidden, &norm)
    };
    let scale = json.number_or("logit_scale", 0.0625, -1e6..=1e6)?;
    let frame = ModelFrame { logits_scale: Some(scale as f32), ..ModelFrame::llama(json, &norm, true)? };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    frame.build(net, &sizes, |net, at, index, x| {
        let local = local[index as usize];
        attention.scores.window = local.then_some(window);
        // A layer that sees all positions gets no angles.
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, local.then_some(angles));
        layer.apply(net, at, x, attend, |net, at, x| mlp.apply(net, at, x))
    })
}
