//! Llama-4 (the text model): sparse feed-forward layers beside a dense one; three of four layers rotate, normalise queries
//! and keys and see positions in chunks, the others see all positions and scale queries by theirs.
//!
//! Chunked attention sees no position of an earlier chunk. Layers that see everything (every fourth) rotate
//! nothing and scale queries by the logarithm of their position instead. The vision tower of multimodal
//! checkpoints is not read.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{QueryKeyNorm, SelfAttention};
use crate::block::decoder::{ModelFrame, LLAMA};
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::moe::{Experts, Moe, SharedExpert};
use crate::block::norm::{HeadWeights, Norm};
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::block::windows;
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::{PositionForm, PositionScale, Route, Scores};

/// Meta AI, "The Llama 4 herd", 2025; the multimodal checkpoints hold the text model as a part.
pub const LLAMA4: Architecture = Architecture { model_types: &["llama4_text", "llama4"], build };

/// The text model, at the top of the configuration or below `text_config`.
fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    match json.section("text_config")? {
        Some(text) => build_text(&text, net, "language_model."),
        None => build_text(json, net, ""),
    }
}

/// The language model; `prefix` stands before the names of its weights.
fn build_text(json: &Section<'_>, mut net: Net<'_>, prefix: &str) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(128), context: 1 << 17, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-5)?;
    let interval = json.size_or("no_rope_layer_interval", 4, 1..=1 << 12)?;
    let rotated = windows::flags(json, "no_rope_layers", sizes.layers, |index| {
        !(index + 1).is_multiple_of(interval)
    })?;
    let local = windows::local_layers(json, sizes.layers, |index| rotated[index as usize])?;
    let layers = Kinds::read(json, &sizes, &norm)?;

    let step = json.size_or("interleave_moe_layer_step", 1, 1..=1 << 12)?;
    // A list of layers wins over the step.
    let sparse: Vec<u32> = match json.get("moe_layers") {
        Some(_) => json.ids("moe_layers", sizes.layers as usize)?,
        None => (step - 1..sizes.layers).step_by(step as usize).collect(),
    };
    let layer = Layer { modules: ["self_attn", "feed_forward"], ..Layer::new(sizes.hidden, &norm) };
    let frame = ModelFrame::with_prefix(json, &norm, false, prefix, LLAMA)?;
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new(format!("{prefix}model.rotary_emb")), angles, &[])?;
    let chunk = json.optional_size("attention_chunk_size", 1..=1 << 26)?;
    frame.build(net, &sizes, |net, at, index, x| {
        let (rotated, local) = (rotated[index as usize], local[index as usize]);
        let attend = |net: &mut Net, at: &Path, x| {
            let mut attention = if rotated { layers.rotated.clone() } else { layers.global.clone() };
            attention.scores.chunk = chunk.filter(|_| local);
            attention.apply(net, at, x, rotated.then_some(angles))
        };
        let feed = |net: &mut Net, at: &Path, x| if sparse.contains(&index) { layers.moe.apply(net, at, x) } else { layers.dense.apply(net, at, x) };
        layer.apply(net, at, x, attend, feed)
    })
}

/// The kinds of attention and of feed-forward layers.
struct Kinds {
    /// Attention of the layers that rotate and see chunks.
    rotated: SelfAttention,
    /// Attention of the layers that see all positions.
    global: SelfAttention,
    dense: Mlp,
    moe: Moe,
}

impl Kinds {
    /// Reads all four kinds; each layer then takes two of them.
    fn read(json: &Section, sizes: &Sizes, norm: &Norm) -> Result<Kinds> {
        let bias = json.flag_or("attention_bias", false)?;
        let attention =
            SelfAttention { bias, output_bias: bias, interleaved: true, ..SelfAttention::new(sizes) };
        let heads = QueryKeyNorm {
            after_rotation: true,
            ..QueryKeyNorm::of_heads(
                ["q_norm", "k_norm"],
                // The norm of queries and keys has no weights, and stands behind the rotation.
                &norm.clone().without_weights(),
                HeadWeights::Shared,
            )
        };
        let floor = json.size_or("floor_scale", 8192, 1..=1 << 26)?;
        let beta = json.number_or("attn_scale", 0.1, 0.0..=1e3)? as f32;
        let scale = PositionScale { form: PositionForm::Llama4 { beta, floor, shift: 1 } };
        let query_scale = json.flag_or("attn_temperature_tuning", true)?.then_some(scale);
        Ok(Kinds {
            rotated: SelfAttention {
                norm: json.flag_or("use_qk_norm", true)?.then_some(heads),
                ..attention.clone()
            },
            global: SelfAttention { query_scale, ..attention },
            dense: Mlp {
                intermediate: json.size_or("intermediate_size_mlp", 16384, 1..=1 << 20)?,
                ..Mlp::llama(sizes, ActivationOp::read(json, "hidden_act", "silu")?)
            },
            moe: sparse_layer(json, sizes)?,
        })
    }
}

/// Experts are stored as stacks; the shared expert has the experts' own width.
fn sparse_layer(json: &Section, sizes: &Sizes) -> Result<Moe> {
    let experts = json.size_or("num_local_experts", 16, 1..=1 << 12)?;
    let k = json.size_or("num_experts_per_tok", 1, 1..=experts)?;
    // Weighing inputs and weighing results differ once several results are added.
    if k != 1 {
        let text = "the router weighs what enters the experts, which is supported for one expert only";
        return Err(json.unsupported("num_experts_per_tok", text));
    }
    let activation = ActivationOp::read(json, "hidden_act", "silu")?;
    Ok(Moe {
        hidden: sizes.hidden,
        intermediate: sizes.intermediate,
        experts,
        router: "router",
        choice_bias: None,
        route: Route { k, scores: Scores::Sigmoid, normalize: false, scale: 1.0, groups: None },
        weigh_inputs: true,
        activation: activation.clone(),
        layout: Experts::Stacked,
        shared: Some(SharedExpert { name: "shared_expert", mlp: Mlp::llama(sizes, activation), gate: None }),
    })
}
