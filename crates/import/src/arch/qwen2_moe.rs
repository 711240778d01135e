//! Qwen2-MoE (Qwen1.5-MoE): Qwen2 with sparse feed-forward layers, each beside a dense one whose share a gate decides.
//!
//! Layers may be dense by `decoder_sparse_step` and `mlp_only_layers`; these have the width
//! `intermediate_size`.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::moe::{self, Experts, Moe, SharedExpert};
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::{Route, Scores};

/// Yang et al., "Qwen2 Technical Report", 2024, section 2.2.2.
pub const QWEN2_MOE: Architecture = Architecture { model_types: &["qwen2_moe"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(16), context: 32768, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let mut attention =
        SelfAttention { bias: json.flag_or("qkv_bias", true)?, ..SelfAttention::new(&sizes) };
    let windows = windows::switched_windows(json, sizes.layers)?;
    let sparse = moe::sparse_layers(json, sizes.layers)?;
    let experts = json.size_or("num_experts", 60, 1..=1 << 12)?;
    let k = json.size_or("num_experts_per_tok", 4, 1..=experts)?;
    let normalize = json.flag_or("norm_topk_prob", false)?;
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    let dense = Mlp::llama(&sizes, activation.clone());
    let intermediate = json.size_or("shared_expert_intermediate_size", 5632, 1..=1 << 20)?;
    // Its share is `sigmoid(gate(x))`, one number per position.
    let shared = SharedExpert {
        name: "shared_expert",
        mlp: Mlp { intermediate, ..dense.clone() },
        gate: Some("shared_expert_gate"),
    };
    let moe = Moe {
        hidden: sizes.hidden,
        intermediate: json.size("moe_intermediate_size", 1..=1 << 20)?,
        experts,
        router: "gate",
        choice_bias: None,
        // A softmax over all experts; the chosen weights need not add up to 1.
        route: Route { k, scores: Scores::Softmax, normalize, scale: 1.0, groups: None },
        weigh_inputs: false,
        activation,
        layout: Experts::Listed { names: ["gate_proj", "up_proj", "down_proj"] },
        shared: Some(shared),
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
