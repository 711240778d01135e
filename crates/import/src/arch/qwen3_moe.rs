//! Qwen3-MoE: Qwen3 with sparse feed-forward layers.
//!
//! There is no shared expert. A window, where it is switched on, holds in all layers.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{QueryKeyNorm, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::moe::{self, Experts, Moe};
use crate::block::norm::{HeadWeights, Norm};
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::{Route, Scores};

/// Yang et al., "Qwen3 Technical Report", 2025, section 2.
pub const QWEN3_MOE: Architecture = Architecture { model_types: &["qwen3_moe"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(4), context: 32768, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("attention_bias", false)?;
    let heads = QueryKeyNorm::of_heads(["q_norm", "k_norm"], &norm, HeadWeights::Shared);
    let mut attention =
        SelfAttention { bias, output_bias: bias, norm: Some(heads), ..SelfAttention::new(&sizes) };
    let windows = windows::uniform_windows(json, sizes.layers)?;
    let sparse = moe::sparse_layers(json, sizes.layers)?;
    let experts = json.size_or("num_experts", 128, 1..=1 << 12)?;
    let k = json.size_or("num_experts_per_tok", 8, 1..=experts)?;
    let normalize = json.flag_or("norm_topk_prob", false)?;
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let dense = Mlp::llama(&sizes, activation.clone());
    let moe = Moe {
        hidden: sizes.hidden,
        intermediate: json.size("moe_intermediate_size", 1..=1 << 20)?,
        experts,
        router: "gate",
        choice_bias: None,
        route: Route { k, scores: Scores::Softmax, normalize, scale: 1.0, groups: None },
        weigh_inputs: false,
        activation,
        layout: Experts::Listed { names: ["gate_proj", "up_proj", "down_proj"] },
        shared: None,
    };
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.build(net, &sizes, |net, at, index, x| {
        attention.scores.window = windows[index as usize];
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, Some(angles));
        let feed = |net: &mut Net, at: &Path, x| if sparse[index as usize] { moe.apply(net, at, x) } else { dense.apply(net, at, x) };
        layer.apply(net, at, x, attend, feed)
    })
}
