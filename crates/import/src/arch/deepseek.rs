//! DeepSeekMoE: Llama whose feed-forward layers, but for the first ones, are sparse beside dense experts that all
//! positions share. What its successors have in common with it stands here too.
//!
//! The router's weights are a softmax over all experts; the chosen ones are divided by their sum only if
//! the configuration says so.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::moe::{Experts, Moe, SharedExpert};
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{Route, Scores};
use tapml_graph::{Result, ValueId};

/// Dai et al., "DeepSeekMoE", 2024.
pub const DEEPSEEK: Architecture = Architecture { model_types: &["deepseek"], build };

/// Attention is Llama's; only the feed-forward layers differ.
fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults::LLAMA)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let bias = json.flag_or("attention_bias", false)?;
    let attention = SelfAttention { bias, output_bias: bias, ..SelfAttention::new(&sizes) };
    let normalize = json.flag_or("norm_topk_prob", false)?;
    let feed = FeedForward::read(json, &sizes, |k| {
        Ok(Route { k, scores: Scores::Softmax, normalize, scale: 1.0, groups: None })
    })?;
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.build(net, &sizes, |net, at, index, x| {
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, Some(angles));
        layer.apply(net, at, x, attend, |net, at, x| feed.apply(net, at, index, x))
    })
}

/// The feed-forward layers of all generations: dense ones, then sparse ones.
pub struct FeedForward {
    /// That of the first layers, with the width `intermediate_size`.
    dense: Mlp,
    /// The sparse ones.
    pub moe: Moe,
    /// Layers below this number are dense.
    first_sparse: u32,
    /// Of the others every `step`th is sparse, counted from layer 0.
    step: u32,
}

impl FeedForward {
    /// Reads the sizes; `route` gives the router for this many experts of a position.
    pub fn read(
        json: &Section,
        sizes: &Sizes,
        route: impl FnOnce(u32) -> Result<Route>,
    ) -> Result<FeedForward> {
        let activation = ActivationOp::read(json, "hidden_act", "silu")?;
        let dense = Mlp::llama(sizes, activation.clone());
        let intermediate = json.size("moe_intermediate_size", 1..=1 << 20)?;
        let experts = json.size("n_routed_experts", 1..=1 << 12)?;
        let shared = json.optional_size("n_shared_experts", 1..=1 << 8)?.map(|count| SharedExpert {
            name: "shared_experts",
            // Several shared experts are stored as one of their joint width.
            mlp: Mlp { intermediate: intermediate.saturating_mul(count), ..dense.clone() },
            gate: None,
        });
        let moe = Moe {
            hidden: sizes.hidden,
            intermediate,
            experts,
            router: "gate",
            choice_bias: None,
            route: route(json.size("num_experts_per_tok", 1..=experts)?)?,
            weigh_inputs: false,
            activation,
            layout: Experts::Listed { names: ["gate_proj", "up_proj", "down_proj"] },
            shared,
        };
        let first_sparse = json.size_or("first_k_dense_replace", 0, 0..=1 << 12)?;
        let step = json.size_or("moe_layer_freq", 1, 1..=1 << 12)?;
        Ok(FeedForward { dense, moe, first_sparse, step })
    }

    /// The result of the layer `index` for `x: [n, hidden]`.
    pub fn apply(&self, net: &mut Net, at: &Path, index: u32, x: ValueId) -> Result<ValueId> {
        if index >= self.first_sparse && index.is_multiple_of(self.step) { self.moe.apply(net, at, x) } else { self.dense.apply(net, at, x) }
    }
}
