//! The model-wise check: a hybrid model, fed with the recorded tokens, against the logits that the source gave.

use crate::carve::argmax;
use crate::noise::{Limits, logits_value};
use crate::progress::{Progress, Stop};
use crate::suite::Suite;
use serde::{Deserialize, Serialize};
use tapml_exec::{Hybrid, LOGITS};
use tapml_graph::{Error, Model, Result};

/// The numbers of a model-wise check, over all prompt and decode positions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCheck {
    /// Mean of KL(source ‖ hybrid) over the positions, nats.
    pub kl: f64,
    /// Share of positions at which both put the same token first.
    pub top1_agreement: f64,
    /// Largest `|Δlogit| / allowed` over all positions and tokens; see [`crate::Limits`]. Above 1 fails.
    pub max_logit_ratio: f64,
    /// Whether the hybrid puts the source's greedy token first at every decode position.
    pub text_equal: bool,
    /// Whether the hybrid passes: the logits are finite and no ratio exceeds 1.
    pub passed: bool,
    /// Largest KL of one position, nats.
    pub kl_max: f64,
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
        if !self.max_logit_error.is_finite() {
            return format!(
                "the hybrid model gives logits that are not finite at prompt {prompt}, position {position}"
            );
        }
        format!(
            "the hybrid model's logits differ from the source's by {:.3e} at prompt {prompt}, position {position}; \
             {:.3e} is what all allowed errors together explain (KL {:.2e}, same first token at {:.1} % of {} positions)",
            self.max_logit_error,
            self.allowed,
            self.kl,
            100.0 * self.top1_agreement,
            self.positions
        )
    }
}

/// Runs the hybrid over every prompt and its recorded tokens and compares each row of logits.
pub fn check_model(
    hybrid: &mut Hybrid,
    suite: &Suite,
    model: &Model,
    limits: &Limits,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<ModelCheck> {
    let logits = logits_value(model)?;
    let mut sums = ModelCheck { text_equal: true, ..ModelCheck::default() };
    let (mut kl_sum, mut agree) = (0.0, 0u64);
    for (index, prompt) in suite.manifest().prompts.iter().enumerate() {
        hybrid.reset()?;
        let mut tokens = Vec::new();
        let frames = suite.frames().iter().enumerate().filter(|(_, f)| f.prompt as usize == index);
        for (frame, run) in frames {
            stop.check()?;
            let position = hybrid.position() as u64;
            let step = run.step as usize;
            let ids = match step {
                0 => prompt.ids.as_slice(),
                _ => prompt
                    .generated
                    .get(step - 1..step)
                    .ok_or_else(|| Error::invalid("a token is not recorded"))?,
            };
            let found = hybrid.run(ids)?.remove(LOGITS);
            let found = found.ok_or_else(|| Error::bug("the hybrid gave no `logits`"))?;
            let expected = suite.value(frame, logits)?;
            if found.shape() != expected.shape() {
                return Err(Error::bug(format!(
                    "logits {:?}, expected {:?}",
                    found.shape(),
                    expected.shape()
                )));
            }
            let width = expected.row_len().max(1);
            let (found, expected) = (found.to_f32(), expected.to_f32());
            for (row, (found, expected)) in found.chunks(width).zip(expected.chunks(width)).enumerate() {
                let (kl, error) = row_distance(expected, found);
                let allowed = limits.allowed(frame, row);
                let ratio = if error == 0.0 { 0.0 } else { error / allowed };
                sums.positions += 1;
                kl_sum += kl;
                sums.kl_max = sums.kl_max.max(kl);
                agree += u64::from(argmax(expected) == argmax(found));
                if ratio > sums.max_logit_ratio || ratio.is_nan() {
                    (sums.max_logit_ratio, sums.max_logit_error, sums.allowed) = (ratio, error, allowed);
                    (sums.worst_prompt, sums.worst_position) = (index as u32, position + row as u64);
                }
            }
            tokens.push(argmax(&found[found.len().saturating_sub(width)..]));
            progress.advance(1);
        }
        sums.text_equal &= tokens == prompt.generated;
        sums.tokens.push(tokens);
    }
    sums.kl = kl_sum / sums.positions.max(1) as f64;
    sums.top1_agreement = agree as f64 / sums.positions.max(1) as f64;
    sums.passed = sums.max_logit_ratio <= 1.0 && sums.max_logit_error.is_finite();
    Ok(sums)
}

/// KL(expected ‖ found) of two rows of logits, nats, and the largest distance; infinite if a value is not finite.
pub fn row_distance(expected: &[f32], found: &[f32]) -> (f64, f64) {
    if found.iter().any(|v| !v.is_finite()) {
        return (f64::INFINITY, f64::INFINITY);
    }
    let norm = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&v| f64::from(v - max).exp()).sum();
        f64::from(max) + sum.ln()
    };
    let (a, b) = (norm(expected), norm(found));
    let (mut kl, mut error) = (0.0, 0.0f64);
    for (&e, &f) in expected.iter().zip(found) {
        let (e, f) = (f64::from(e), f64::from(f));
        kl += (e - a).exp() * ((e - a) - (f - b));
        error = error.max((e - f).abs());
    }
    (kl.max(0.0), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_is_zero_for_equal_rows_and_known_for_two_tokens() {
        assert_eq!(row_distance(&[1.0, 2.0, -3.0], &[1.0, 2.0, -3.0]), (0.0, 0.0));
        let (kl, error) = row_distance(&[0.0, 0.0], &[0.0, (3.0f32).ln()]);
        let expected = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((kl - expected).abs() < 1e-7 && (error - 3f64.ln()).abs() < 1e-7, "{kl} {error}");
        assert_eq!(row_distance(&[0.0, 0.0], &[f32::NAN, 0.0]).1, f64::INFINITY);
    }
}
