//! Ministral-3: Mistral whose queries grow with their position beyond the length it was first trained for.
//!
//! `mistral3` is the multimodal configuration; only its text model is read.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::attention::SelfAttention;
use crate::block::decoder::{ModelFrame, LLAMA};
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::{PositionForm, PositionScale};

/// Mistral AI, "Ministral 3", 2026; the multimodal checkpoints hold the text model as a part.
pub const MINISTRAL3: Architecture = Architecture { model_types: &["ministral3", "mistral3"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    let key = "tie_word_embeddings";
    let Some(text) = json.section("text_config")? else {
        return build_text(json, net, "", json.flag_or(key, false)?);
    };
    // The head stands beside the text model: what the outer configuration says of it decides.
    let tied = json.flag_or(key, text.flag_or(key, false)?)?;
    match text.text("model_type")? {
        "ministral3" => build_text(&text, net, "language_model.", tied),
        other => {
            let error = text.unsupported("model_type", &format!("text model `{other}` is not supported here"));
            Err(error.with_hint("supported: ministral3"))
        }
    }
}

fn build_text(json: &Section<'_>, mut net: Net<'_>, prefix: &str, tied: bool) -> Result<Decoder> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(128), context: 1 << 18, ..Defaults::LLAMA };
    let sizes = Sizes::read(json, &defaults)?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-5)?;
    let mut attention = SelfAttention { query_scale: query_scale(json)?, ..SelfAttention::new(&sizes) };
    attention.scores.window = json.optional_size("sliding_window", 1..=1 << 26)?;
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new(format!("{prefix}model.rotary_emb")), angles, &[])?;
    let frame = ModelFrame { tied, ..ModelFrame::with_prefix(json, &norm, tied, prefix, LLAMA)? };
    frame.uniform(net, &sizes, &layer, &attention, &mlp, Some(angles))
}

/// `1 + beta·ln(1 + ⌊t / original⌋)` for queries at position `t`, from `rope_parameters`.
/// `None` without the key: models of the family need not scale.
fn query_scale(json: &Section) -> Result<Option<PositionScale>> {
    let Some(rope) = rope::scaling(json)? else { return Ok(None) };
    if rope.get("llama_4_scaling_beta").is_none() {
        return Ok(None);
    }
    let beta = rope.number("llama_4_scaling_beta", 0.0..=1e3)? as f32;
    let floor = rope.size("original_max_position_embeddings", 1..=1 << 26)?;
    Ok(Some(PositionScale { form: PositionForm::Llama4 { beta, floor, shift: 0 } }))
}
