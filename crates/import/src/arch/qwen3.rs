//! Qwen3: Llama whose queries and keys are normalised head by head; the upper layers see a sliding window where that is
//! switched on.
//!
//! The norm over each head has one weight of `head_dim` elements for all heads and stands before the
//! rotation.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{QueryKeyNorm, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::{HeadWeights, Norm};
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Yang et al., "Qwen3 Technical Report", 2025.
pub const QWEN3: Architecture = Architecture { model_types: &["qwen3"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(32), head_dim: Some(128), context: 32768, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("attention_bias", false)?;
    let heads = QueryKeyNorm::of_heads(["q_norm", "k_norm"], &norm, HeadWeights::Shared);
    let mut attention =
        SelfAttention { bias, output_bias: bias, norm: Some(heads), ..SelfAttention::new(&sizes) };
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
