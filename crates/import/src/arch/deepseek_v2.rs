//! DeepSeek-V2: DeepSeekMoE with latent attention, and experts chosen, in the larger model, from the best groups. What
//! V3 has in common with it stands here too.
//!
//! The smaller model (Lite) chooses experts greedily, the larger one first the groups with the largest
//! maximum. Attention is `block::latent`.

use super::deepseek::FeedForward;
use super::{Architecture, Decoder};
use crate::block::decoder::ModelFrame;
use crate::block::latent::LatentAttention;
use crate::block::layer::Layer;
use crate::block::norm::Norm;
use crate::block::rope;
use crate::block::sizes::{Defaults, Sizes};
use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::Result;
use tapml_graph::op::{GroupScore, Groups, Route, Scores};

/// DeepSeek-AI, "DeepSeek-V2", 2024, section 2.
pub const DEEPSEEK_V2: Architecture = Architecture { model_types: &["deepseek_v2"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    if json.flag_or("norm_topk_prob", false)? {
        let text = "weights of experts that are divided by their sum are not supported for this architecture";
        return Err(json.unsupported("norm_topk_prob", text));
    }
    let scale = json.number_or("routed_scaling_factor", 1.0, 1e-6..=1e6)? as f32;
    let groups = match json.text_or("topk_method", "greedy")? {
        "greedy" => None,
        "group_limited_greedy" => Some(groups(json, GroupScore::Max)?),
        other => {
            let text = format!("method `{other}` is not supported");
            let hint = "supported: greedy, group_limited_greedy";
            return Err(json.unsupported("topk_method", &text).with_hint(hint));
        }
    };
    let sizes = sizes(json)?;
    let feed = FeedForward::read(json, &sizes, |k| {
        Ok(Route { k, scores: Scores::Softmax, normalize: false, scale, groups })
    })?;
    latent_decoder(json, net, &sizes, &feed, true)
}

/// Groups of experts.
/// Reads how many there are and how many may be chosen from; `by` is how a group is scored.
pub fn groups(json: &Section, by: GroupScore) -> Result<Groups> {
    let count = json.size("n_group", 1..=1 << 12)?;
    Ok(Groups { count, selected: json.size("topk_group", 1..=count)?, by })
}

/// The sizes; a head's are those of its rotated part, because latent attention has others of its own.
pub fn sizes(json: &Section) -> Result<Sizes> {
    // `num_key_value_heads` is read with the others and counts for nothing here.
    let rotary_dim = json.size("qk_rope_head_dim", 2..=1 << 12)?;
    let sizes = Sizes::read(json, &Defaults { head_dim: Some(rotary_dim), ..Defaults::LLAMA })?;
    Ok(Sizes { head_dim: rotary_dim, ..sizes })
}

/// The whole decoder: latent attention and these feed-forward layers.
pub fn latent_decoder(
    json: &Section,
    mut net: Net<'_>,
    sizes: &Sizes,
    feed: &FeedForward,
    interleaved: bool,
) -> Result<Decoder> {
    let norm = Norm::rms(json, "rms_norm_eps", 1e-6)?;
    let plain_dim = json.size("qk_nope_head_dim", 1..=1 << 12)?;
    let q_rank = json.size_or("q_lora_rank", 1536, 1..=1 << 17)?;
    let factor = rope::score_factor(json, sizes.context)?;
    let attention = LatentAttention {
        hidden: sizes.hidden,
        heads: sizes.heads,
        // `null` means that queries have no latent (Lite); an absent key means the default.
        q_rank: (!json.is_null("q_lora_rank")).then_some(q_rank),
        kv_rank: json.size("kv_lora_rank", 1..=1 << 17)?,
        plain_dim,
        rotary_dim: sizes.head_dim,
        value_dim: json.size("v_head_dim", 1..=1 << 12)?,
        bias: json.flag_or("attention_bias", false)?,
        // The norms of the latents have an epsilon of their own.
        latent_norm: Norm::rms_of(1e-6),
        interleaved,
        // Over the root of the whole head, rotated part included.
        scale: (factor / f64::from(plain_dim + sizes.head_dim).sqrt()) as f32,
    };
    let layer = Layer::new(sizes.hidden, &norm);
    let angles = rope::angles(json, sizes.head_dim, sizes.context)?;
    let angles = net.node(&Path::new("model.rotary_emb"), angles, &[])?;
    ModelFrame::llama(json, &norm, false)?.build(net, sizes, |net, at, index, x| {
        let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, angles);
        layer.apply(net, at, x, attend, |net, at, x| feed.apply(net, at, index, x))
    })
}
