//! DeepSeek-V3 and R1: DeepSeek-V2 whose router scores by sigmoid and has a bias that takes part in choosing only.
//!
//! Experts are chosen by `sigmoid(logit) + bias` and weighed by `sigmoid(logit)` alone. A group's score is
//! the sum of its two best.

use super::deepseek::FeedForward;
use super::deepseek_v2::{groups, latent_decoder, sizes};
use super::{Architecture, Decoder};
use crate::config::Section;
use crate::net::Net;
use tapml_graph::Result;
use tapml_graph::op::{GroupScore, Route, Scores};

/// DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.1.
pub const DEEPSEEK_V3: Architecture = Architecture { model_types: &["deepseek_v3"], build };

fn build(json: &Section<'_>, net: Net<'_>) -> Result<Decoder> {
    // Other methods would give other numbers, so they are refused.
    for (key, served) in [("topk_method", "noaux_tc"), ("scoring_func", "sigmoid")] {
        let found = json.text_or(key, served)?;
        if found != served {
            let text = format!("`{found}` is not supported for this architecture");
            return Err(json.unsupported(key, &text).with_hint(format!("supported: {served}")));
        }
    }
    let normalize = json.flag_or("norm_topk_prob", true)?;
    let scale = json.number_or("routed_scaling_factor", 2.5, 1e-6..=1e6)? as f32;
    let groups = Some(groups(json, GroupScore::Top2Sum)?);
    let sizes = sizes(json)?;
    let mut feed = FeedForward::read(json, &sizes, |k| {
        Ok(Route { k, scores: Scores::Sigmoid, normalize, scale, groups })
    })?;
    feed.moe.choice_bias = Some("e_score_correction_bias");
    let interleaved = json.flag_or("rope_interleave", true)?;
    latent_decoder(json, net, &sizes, &feed, interleaved)
}
