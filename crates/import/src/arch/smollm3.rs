//! SmolLM3: Llama in which every fourth layer, or those that are listed, rotate nothing.
//!
//! Layers without rotation (NoPE): Kazemnejad et al., "The Impact of Positional Encoding on Length
//! Generalization in Transformers", 2023. `no_rope_layers` holds 1 where a layer does rotate.

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

/// Bakouch et al., "SmolLM3: smol, multilingual, long-context reasoner", 2025.
pub const SMOLLM3: Architecture = Architecture { model_types: &["smollm3"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(4), context: 32768, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("attention_bias", false)?;
    let mut attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let interval = json.size_or("no_rope_layer_interval", 4, 1..=1 << 12)?;
    let rotated = windows::flags(json, "no_rope_layers", sizes.layers, |index| {
        !(index + 1).is_multiple_of(interval)
    })?;
    let window = json.optional_size("sliding_window", 1..=1 << 26)?;
    let windowed = json.flag_or("use_sliding_window", false)?;
    let window = window.filter(|_| windowed);
    let local = windows::local_layers(json, sizes.layers, |index| !rotated[index as usize])?;
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let mlp = Mlp { bias: json.flag_or("mlp_bias", false)?, ..Mlp::llama(&sizes, activation) };
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, true)?.build(net, &sizes, |net, at, index, x| {
        attention.scores.window = window.filter(|_| local[index as usize]);
        let angles = rotated[index as usize].then_some(angles);
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, angles);
        layer.apply(net, at, x, attend, |net, at, x| mlp.apply(net, at, x))
    })
}
