//! GPT-2: decoder with learned positions, layer normalisation, biases and GELU; matrices are stored as
//! `[inputs, outputs]`.
//!
//! The matrices are those of `Conv1D`, so they are turned when they are loaded. Scores may be divided by
//! the layer's number (`scale_attn_by_inverse_layer_idx`, counted from 1).

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::decoder::{ModelFrame, LearnedPositions};
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
pub const GPT2: Architecture = Architecture { model_types: &["gpt2"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    let sizes = Sizes::read(json, &Defaults { intermediate: Some(4), context: 1024, ..Defaults::LLAMA })?;
    let norm = Norm::layer(json, "layer_norm_epsilon", 1e-5)?;
    let mut attention = SelfAttention {
        projections: Projections::Fused { name: "c_attn" },
        bias: true,
        output: "c_proj",
        output_bias: true,
        transposed: true,
        ..SelfAttention::new(&sizes)
    };
    // Without it scores are taken as they are.
    if !json.flag_or("scale_attn_weights", true)? {
        attention.scores.scale = 1.0;
    }
    let scale = attention.scores.scale;
    let by_layer = json.flag_or("scale_attn_by_inverse_layer_idx", false)?;
    let activation = ActivationOp::read(json, "activation_function", "gelu_new")?;
    let mlp = Mlp { transposed: true, ..Mlp::plain(&sizes, activation, ["c_fc", "c_proj"]) };
    let layer =
        Layer { before: Some(["ln_1", "ln_2"]), modules: ["attn", "mlp"], ..Layer::new(sizes.hidden, &norm) };
    // The first checkpoints name their tensors without the outermost module.
    let root = if net.holds("wte.weight") && !net.holds("transformer.wte.weight") { "" } else { "transformer." };
    let names = ["wte", "h", "ln_f"].map(|name| format!("{root}{name}"));
    // The head is tied by default and then has no tensor of its own.
    let names = [names[0].as_str(), names[1].as_str(), names[2].as_str(), "lm_head"];
    let positions = LearnedPositions { at: Path::new(format!("{root}wpe")), count: sizes.context };
    let frame = ModelFrame { positions: Some(positions), ..ModelFrame::with_names(json, &norm, true, names)? };
    frame.build(net, &sizes, |net, at, index, x| {
        attention.scores.scale = if by_layer { scale / (index + 1) as f32 } else { scale };
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, None);
        layer.apply(net, at, x, attend, |net, at, x| mlp.apply(net, at, x))
    })
}
