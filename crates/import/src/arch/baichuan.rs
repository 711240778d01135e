//! Baichuan and Baichuan2: Llama with one projection of queries, keys and values; 13B has linear biases (ALiBi) instead of
//! rotary positions, and Baichuan2 divides each row of the head's matrix by its length.
//!
//! `model_type` is the same for 7B, 13B and both generations. What differs is told from other keys: whether
//! there are rotary positions, and the size of the vocabulary.

use super::{Architecture, Decoder};
use crate::block::activation::ActivationOp;
use crate::block::alibi;
use crate::block::attention::{Projections, SelfAttention};
use crate::block::decoder::ModelFrame;
use crate::block::layer::Layer;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;

/// Yang et al., "Baichuan 2: Open Large-scale Language Models", 2023, sections 2.2 and 2.3; Press et al., "Train Short,
/// Test Long" (ALiBi), 2021.
pub const BAICHUAN: Architecture = Architecture { model_types: &["baichuan"], build };

/// Tokens of the first generation, whose head is a plain one. The configuration does not name the generation.
///
/// The second generation has 125 696 token ids.
const FIRST_VOCAB: u32 = 64_000;

fn build(json: &Section<'_>, mut net: Net<'_>) -> Result<Decoder> {
    // Only the models with rotary positions say how many they have.
    let rotary = json.get("max_position_embeddings").is_some();
    let context = json.size_or("model_max_length", 4096, 1..=1 << 26)?;
    let sizes = Sizes::read(json, &Defaults { context, ..Defaults::LLAMA })?;
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let mut attention =
        SelfAttention { projections: Projections::Fused { name: "W_pack" }, ..SelfAttention::new(&sizes) };
    // The slopes stand for positions, so such a model rotates nothing.
    attention.scores.alibi = (!rotary).then(|| alibi::slopes(sizes.heads));
    let mlp = Mlp::llama(&sizes, ActivationOp::read(json, "hidden_act", "silu")?);
    let layer = Layer::new(sizes.hidden, &norm);
    let unit_head = sizes.vocab != FIRST_VOCAB;
    let frame = ModelFrame { unit_head, ..ModelFrame::llama(json, &norm, false)? };
    let angles = if rotary { Some(net.node(
            &Path::new("model.rotary_emb"),
            rope::angles(json, sizes.head_dim, sizes.context)?,
            &[],
        )?) } else { None };
    frame.uniform(net, &sizes, &layer, &attention, &mlp, angles)
}
