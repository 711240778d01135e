//! The model-wise check: a hybrid model, fed with the recorded inputs, against the logits that the source gave, or
//! against the results of an encoder.
//!
//! The hybrid is fed the source's tokens and not its own. A rounding that turns one token over would
//! otherwise make all later positions incomparable.

use crate::argmax::{argmax, argmax_last};
use crate::model_check::ModelCheck;
use crate::noise::{MovementLimits, results};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::suite::Suite;
use std::collections::HashMap;
use tapml_exec::{Hybrid, LOGITS};
use tapml_graph::{Error, Model, Result, Tensor, ValueId};

/// Runs the hybrid over every prompt and its recorded tokens and compares each row of logits, or of an encoder's results.
pub fn check_model(
    hybrid: &mut Hybrid,
    suite: &Suite,
    model: &Model,
    limits: &MovementLimits,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<ModelCheck> {
    watch_model(hybrid, suite, model, limits, progress, stop, &mut |_, _| Ok(()))
}

/// Is shown the results of one run of the suite by name, with the run's index.
pub type Watch<'a> = dyn FnMut(usize, &HashMap<String, Tensor>) -> Result<()> + 'a;

/// As [`check_model`], and shows every run's results to `watch`.
pub fn watch_model(
    hybrid: &mut Hybrid,
    suite: &Suite,
    model: &Model,
    limits: &MovementLimits,
    progress: &dyn Progress,
    stop: &Stop,
    watch: &mut Watch<'_>,
) -> Result<ModelCheck> {
    let graph = model.graph();
    let results: Vec<(&str, ValueId)> = results(graph)?
        .into_iter()
        .filter_map(|id| Some((graph.outputs().iter().find(|o| o.value == id)?.name.as_str(), id)))
        .collect();
    let mut sums = Sums { logits: results.iter().any(|(name, _)| *name == LOGITS), ..Sums::default() };
    let mut texts_equal = true;
    for (index, prompt) in suite.manifest().prompts.iter().enumerate() {
        hybrid.reset()?;
        let mut tokens = Vec::new();
        let frames = suite.frames().iter().enumerate().filter(|(_, f)| f.prompt as usize == index);
        for (frame, _) in frames {
            stop.check()?;
            // Before the run advances it.
            let position = hybrid.position() as u64;
            let found = hybrid.feed(suite.inputs(frame)?)?;
            watch(frame, &found)?;
            // Rows of earlier results of the run: limits count them one below the other.
            let mut before = 0;
            for (name, id) in &results {
                let found =
                    found.get(*name).ok_or_else(|| Error::bug(format!("the hybrid gave no `{name}`")))?;
                let place = RowSource { prompt: index as u32, position, limits, frame, before };
                before += sums.add(&suite.value(frame, *id)?, found, &place)?;
                if *name == LOGITS {
                    tokens.push(argmax_last(found)?);
                }
            }
            progress.advance(1);
        }
        texts_equal &= tokens == prompt.generated;
        sums.check.tokens.push(tokens);
    }
    Ok(sums.finish(texts_equal))
}

/// Where compared rows come from.
struct RowSource<'a> {
    prompt: u32,
    /// Tokens before those of the run.
    position: u64,
    limits: &'a MovementLimits,
    frame: usize,
    /// Rows of the run that were compared before.
    before: usize,
}

/// A check in the making.
#[derive(Default)]
struct Sums {
    check: ModelCheck,
    /// Whether rows are logits.
    logits: bool,
    /// Sum over positions, nats.
    kl: f64,
    /// Of one position, nats.
    kl_max: f64,
    /// Positions with the same first token.
    agree: u64,
}

impl Sums {
    /// Compares one result of a run; gives the number of its rows.
    fn add(&mut self, expected: &Tensor, found: &Tensor, place: &RowSource<'_>) -> Result<usize> {
        if found.shape() != expected.shape() {
            let (found, expected) = (found.shape(), expected.shape());
            return Err(Error::bug(format!("a result of shape {found:?}, expected {expected:?}")));
        }
        let width = expected.row_len().max(1);
        let (found, expected) = (found.to_f32(), expected.to_f32());
        let check = &mut self.check;
        for (row, (found, expected)) in found.chunks(width).zip(expected.chunks(width)).enumerate() {
            let (kl, error) = row_distance(expected, found);
            let allowed = place.limits.allowed_movement(place.frame, place.before + row);
            let ratio = if error == 0.0 { 0.0 } else { error / allowed };
            check.positions += 1;
            self.kl += kl;
            self.kl_max = self.kl_max.max(kl);
            self.agree += u64::from(argmax(expected) == argmax(found));
            // NaN, from infinity over infinity, takes the place of any number.
            if ratio > check.max_logit_ratio || ratio.is_nan() {
                (check.max_logit_ratio, check.max_logit_error, check.allowed) = (ratio, error, allowed);
                (check.worst_prompt, check.worst_position) = (place.prompt, place.position + row as u64);
            }
        }
        Ok(expected.len() / width)
    }

    /// Means from sums, and the verdict.
    fn finish(self, texts_equal: bool) -> ModelCheck {
        let Sums { mut check, logits, kl, kl_max, agree } = self;
        let count = check.positions.max(1) as f64;
        check.passed = check.max_logit_ratio <= 1.0 && check.max_logit_error.is_finite();
        if logits {
            (check.kl, check.kl_max) = (Some(kl / count), Some(kl_max));
            (check.top1_agreement, check.text_equal) = (Some(agree as f64 / count), Some(texts_equal));
        }
        check
    }
}

/// KL(expected ‖ found) of two rows of logits, nats, and the largest distance; infinite if a value is not finite.
pub fn row_distance(expected: &[f32], found: &[f32]) -> (f64, f64) {
    if found.iter().any(|v| !v.is_finite()) {
        return (f64::INFINITY, f64::INFINITY);
    }
    let norm = |row: &[f32]| {
        // The largest logit is taken off, so that no exponential overflows.
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
    // Rounding can make a KL of equal rows slightly negative.
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
