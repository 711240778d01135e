//! What the model-wise check found, as a report has it.

use serde::{Deserialize, Serialize};

/// The numbers of a model-wise check, over all prompt and decode positions. For an encoder, rows of its results stand for
/// logits, and what depends on tokens is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCheck {
    /// Mean of KL(source ‖ hybrid) over the positions, nats.
    pub kl: Option<f64>,
    /// Share of positions at which both put the same token first.
    pub top1_agreement: Option<f64>,
    /// Largest `|Δlogit| / allowed` over all positions and tokens; see [`crate::MovementLimits`]. Above 1 fails.
    pub max_logit_ratio: f64,
    /// Whether the hybrid puts the source's greedy token first at every decode position.
    pub text_equal: Option<bool>,
    /// Whether the hybrid passes: the logits are finite and no ratio exceeds 1.
    pub passed: bool,
    /// Largest KL of one position, nats.
    pub kl_max: Option<f64>,
    /// Positions compared.
    pub positions: u64,
    /// Largest `|Δlogit|`.
    pub max_logit_error: f64,
    /// The prompt of the largest ratio.
    pub worst_prompt: u32,
    /// The position, from 0, of the largest ratio.
    pub worst_position: u64,
    /// What was allowed there.
    pub allowed: f64,
    /// For each prompt the tokens that the hybrid puts first after the prompt and after each of the source's tokens.
    pub tokens: Vec<Vec<u32>>,
}

impl ModelCheck {
    /// Why it failed, in one sentence.
    pub fn reason(&self) -> String {
        let (prompt, position) = (self.worst_prompt, self.worst_position);
        let what = if self.kl.is_some() { "logits" } else { "results" };
        if !self.max_logit_error.is_finite() {
            return format!(
                "the hybrid model gives {what} that are not finite at prompt {prompt}, position {position}"
            );
        }
        let mut text = format!(
            "the hybrid model's {what} differ from the source's by {:.3e} at prompt {prompt}, position {position}; \
             {:.3e} is what all allowed errors together explain",
            self.max_logit_error, self.allowed,
        );
        if let (Some(kl), Some(top1)) = (self.kl, self.top1_agreement) {
            let (share, positions) = (100.0 * top1, self.positions);
            text += &format!(" (KL {kl:.2e}, same first token at {share:.1} % of {positions} positions)");
        }
        text
    }
}
