//! Mixtral: Mistral with a sparse feed-forward layer.
//!
//! All layers are sparse and of the same form. `w1` is the gate, `w3` up, `w2` down.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::moe::{Experts, Moe};
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::{Route, Scores};

/// Jiang et al., "Mixtral of Experts", 2024.
pub const MIXTRAL: Architecture = Architecture { model_types: &["mixtral"], build };

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { kv_heads: Some(8), context: 4096 * 32, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-5)?;
    let mut attention = SelfAttention::new(&sizes);
    attention.scores.window = json.optional_size("sliding_window", 1..=1 << 26)?;
    let experts = json.size_or("num_local_experts", 8, 1..=1 << 12)?;
    let k = json.size_or("num_experts_per_tok", 2, 1..=experts)?;
    let moe = Moe {
        hidden: sizes.hidden,
        intermediate: sizes.intermediate,
        experts,
        router: "gate",
        choice_bias: None,
        // A softmax over all experts, divided by the sum over the chosen ones, is one over these.
        route: Route { k, scores: Scores::SoftmaxOfTop, normalize: false, scale: 1.0, groups: None },
        weigh_inputs: false,
        activation: ActivationOp::read(json, "hidden_act", "silu")?,
        layout: Experts::Listed { names: ["w1", "w3", "w2"] },
        shared: None,
    };
    let layer = Layer { modules: ["self_attn", "block_sparse_moe"], ..Layer::new(sizes.hidden, &norm) };
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.build(net, &sizes, |net, at, _, x| {
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, Some(angles));
        layer.apply(net, at, x, attend, |net, at, x| moe.apply(net, at, x))
    })
}
