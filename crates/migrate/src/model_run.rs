//! The model-wise check: a hybrid model, fed with the recorded inputs, against the logits that the source gave, or
//! against the results of an encoder.
//!
//! The hybrid is fed the source's tokens and not its own. A rounding that turns one token over would
//! otherwise make all later positions incomparable.

use crate::argmax::{argmax, argmax_last};
use crate::model_check::ModelCheck;
use crate::noise::{MovementLimits, results};
use crate::progress::Progress;
use crate::slots::Slots;
use crate::stop::Stop;
use crate::suite::Suite;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
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
    Ok(run_model(hybrid, suite, model, progress, stop)?.judge(limits))
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
    Ok(watched_run(hybrid, suite, model, progress, stop, watch)?.judge(limits))
}

/// As [`check_model`]; what was found is judged later.
pub(crate) fn run_model(
    hybrid: &mut Hybrid,
    suite: &Suite,
    model: &Model,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<ModelRun> {
    watched_run(hybrid, suite, model, progress, stop, &mut |_, _| Ok(()))
}

/// Results that may wait until they are compared.
const QUEUE: usize = 8;

/// The hybrid runs on this thread. Its results are compared in the thread pool meanwhile.
fn watched_run(
    hybrid: &mut Hybrid,
    suite: &Suite,
    model: &Model,
    progress: &dyn Progress,
    stop: &Stop,
    watch: &mut Watch<'_>,
) -> Result<ModelRun> {
    let graph = model.graph();
    let results: Vec<(&str, ValueId)> = results(graph)?
        .into_iter()
        .filter_map(|id| Some((graph.outputs().iter().find(|o| o.value == id)?.name.as_str(), id)))
        .collect();
    let mut run = ModelRun { logits: results.iter().any(|(name, _)| *name == LOGITS), ..ModelRun::default() };
    let (slots, compared) = (Slots::new(QUEUE), Mutex::new(Vec::new()));
    let (slots_of, compared_of) = (&slots, &compared);
    rayon::in_place_scope(|scope| {
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
                for &(name, id) in &results {
                    let found =
                        found.get(name).ok_or_else(|| Error::bug(format!("the hybrid gave no `{name}`")))?;
                    if name == LOGITS {
                        tokens.push(argmax_last(found)?);
                    }
                    let (place, found) =
                        (RowSource { prompt: index as u32, position, frame, before }, found.clone());
                    before += found.len() / found.row_len().max(1);
                    let slot = slots_of.take();
                    scope.spawn(move |_| {
                        let _slot = slot;
                        let rows = suite
                            .value(frame, id)
                            .and_then(|expected| compare_rows(&expected, &found, &place));
                        compared_of
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(((frame, before), rows));
                    });
                }
                progress.advance(1);
            }
            run.texts_differ |= tokens != prompt.generated;
            run.tokens.push(tokens);
        }
        Ok::<(), Error>(())
    })?;
    let mut compared = compared.into_inner().unwrap_or_else(PoisonError::into_inner);
    // In the order of the runs, whichever was compared first: sums must not depend on it.
    compared.sort_by_key(|(at, _)| *at);
    for (_, rows) in compared {
        run.rows.extend(rows?);
    }
    Ok(run)
}

/// Where compared rows come from.
struct RowSource {
    prompt: u32,
    /// Tokens before those of the run.
    position: u64,
    frame: usize,
    /// Rows of the run that were compared before.
    before: usize,
}

/// How far a row lies from the recorded one.
struct ComparedRow {
    prompt: u32,
    position: u64,
    frame: usize,
    /// Among the rows of the run.
    row: usize,
    /// Nats.
    kl: f64,
    /// The largest distance.
    error: f64,
    /// Whether both put the same token first.
    agree: bool,
}

/// Compares the rows of one result.
fn compare_rows(expected: &Tensor, found: &Tensor, place: &RowSource) -> Result<Vec<ComparedRow>> {
    if found.shape() != expected.shape() {
        let (found, expected) = (found.shape(), expected.shape());
        return Err(Error::bug(format!("a result of shape {found:?}, expected {expected:?}")));
    }
    let width = expected.row_len().max(1);
    let (found, expected) = (found.to_f32(), expected.to_f32());
    let compare = |(row, (found, expected)): (usize, (&[f32], &[f32]))| {
        let (kl, error) = row_distance(expected, found);
        let (position, agree) = (place.position + row as u64, argmax(expected) == argmax(found));
        let &RowSource { prompt, frame, before, .. } = place;
        ComparedRow { prompt, position, frame, row: before + row, kl, error, agree }
    };
    Ok(found.chunks(width).zip(expected.chunks(width)).enumerate().map(compare).collect())
}

/// What a hybrid gave for the runs of a suite, compared with what the source gave.
#[derive(Default)]
pub(crate) struct ModelRun {
    /// In the order of the runs.
    rows: Vec<ComparedRow>,
    /// Whether rows are logits.
    logits: bool,
    /// See [`ModelCheck::tokens`].
    tokens: Vec<Vec<u32>>,
    texts_differ: bool,
}

impl ModelRun {
    /// Means of all rows, and the verdict.
    pub(crate) fn judge(self, limits: &MovementLimits) -> ModelCheck {
        let mut check = ModelCheck { tokens: self.tokens, ..ModelCheck::default() };
        let (mut kl, mut kl_max, mut agree) = (0.0, 0.0f64, 0u64);
        for row in &self.rows {
            let allowed = limits.allowed_movement(row.frame, row.row);
            let ratio = if row.error == 0.0 { 0.0 } else { row.error / allowed };
            check.positions += 1;
            kl += row.kl;
            kl_max = kl_max.max(row.kl);
            agree += u64::from(row.agree);
            // NaN, from infinity over infinity, takes the place of any number.
            if ratio > check.max_logit_ratio || ratio.is_nan() {
                (check.max_logit_ratio, check.max_logit_error, check.allowed) = (ratio, row.error, allowed);
                (check.worst_prompt, check.worst_position) = (row.prompt, row.position);
            }
        }
        let count = check.positions.max(1) as f64;
        check.passed = check.max_logit_ratio <= 1.0 && check.max_logit_error.is_finite();
        if self.logits {
            (check.kl, check.kl_max) = (Some(kl / count), Some(kl_max));
            (check.top1_agreement, check.text_equal) = (Some(agree as f64 / count), Some(!self.texts_differ));
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
