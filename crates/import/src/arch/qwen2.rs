//! Qwen2 (Qwen1.5, Qwen2.5 and Coder): Llama with biases on queries, keys and values; the upper layers see a sliding
//! window where that is switched on.
//!
//! The output projection has no bias. A window holds from layer `max_window_layers` on.

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

/// Yang et al., "Qwen2 Technical Report", 2024.
pub const QWEN2: Architecture = Architecture { model_types: &["qwen2"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(32), context: 32768, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let mut attention = SelfAttention { bias: true, ..SelfAttention::new(&sizes) };
    let windows = windows::switched_windows(json, sizes.layers)?;
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.build(net, &sizes, |net, at, index, x| {
        attention.scores.window = windows[index as usize];
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, Some(angles));
        layer.apply(net, at, x, attend, |net, at, x| mlp.apply(net, at, x))
    })
}
