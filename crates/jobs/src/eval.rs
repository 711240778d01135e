//! How far a model departs from another, token by token over a text: what quantising costs.
//!
//! Both models read the same tokens (teacher forcing); nothing is sampled. The divergence is that of the
//! two distributions over the whole vocabulary, in f64.

use serde::Serialize;
use tapml_exec::{Platform, Session};
use tapml_graph::{Error, Model, Result};
use tapml_migrate::Stop;

/// Tokens of a window that are fed but not judged: the first have little in front of them.
///
/// The first token of a window is predicted from nothing.
const UNJUDGED: usize = 1;

/// What a comparison found. Natural logarithms throughout.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Tokens whose probabilities were compared.
    pub tokens: usize,
    /// Perplexity of the model that is compared with.
    pub source_perplexity: f64,
    /// Perplexity of the model under test.
    pub perplexity: f64,
    /// Mean over tokens of the Kullback-Leibler divergence of the model under test from the other.
    pub kl: f64,
    /// The largest divergence at one token.
    pub kl_most: f64,
    /// Share of tokens at which both find the same token the most likely.
    pub top1_agreement: f64,
}

/// A model and the platform it runs on.
pub struct Side<'a> {
    /// The model, with logits for every position.
    pub model: &'a Model,
    /// Where it runs.
    pub platform: &'a mut dyn Platform,
}

/// Tokens in windows of at most `window`. `begin`, the token that begins a text if the vocabulary has one, stands in front of each.
///
/// # Errors
/// If there is nothing to predict.
pub fn split_windows(ids: &[u32], window: usize, begin: Option<u32>) -> Result<Vec<Vec<u32>>> {
    if window < 2 || ids.len() < 2 {
        return Err(Error::invalid(format!(
            "{} tokens in windows of {window}: there is nothing to predict",
            ids.len()
        )));
    }
    // A begin token takes a place of the window.
    let pieces = ids.chunks(window - begin.iter().len());
    Ok(pieces.map(|piece| begin.into_iter().chain(piece.iter().copied()).collect()).collect())
}

/// Compares two models over windows of tokens, each of which begins anew; `so_far` is told what holds after each. Fails if the
/// vocabularies differ in size, and between two windows if someone has asked to stop.
///
/// # Errors
/// Also if there is nothing to predict, or the two models give logits of different shapes.
pub fn compare<W: AsRef<[u32]>>(
    source: Side<'_>,
    tested: Side<'_>,
    windows: &[W],
    stop: &Stop,
    so_far: &mut dyn FnMut(Comparison),
) -> Result<Comparison> {
    let longest = windows.iter().map(|window| window.as_ref().len()).max().unwrap_or(0);
    if longest < 2 {
        return Err(Error::invalid("windows of fewer than two tokens: there is nothing to predict"));
    }
    let mut source = Session::new(source.platform, source.model, longest)?;
    let mut tested = Session::new(tested.platform, tested.model, longest)?;
    let mut sums = Sums::default();
    for fed in windows.iter().map(W::as_ref) {
        // The last window may hold one token, which predicts nothing.
        if fed.len() < 2 {
            continue;
        }
        stop.check()?;
        source.reset()?;
        tested.reset()?;
        let (expected, found) = (source.forward(fed)?, tested.forward(fed)?);
        if expected.shape() != found.shape() {
            let (expected, found) = (expected.shape(), found.shape());
            return Err(Error::invalid(format!(
                "logits of shape {found:?}, those of the source {expected:?}"
            )));
        }
        let (expected, found) = (expected.to_f32(), found.to_f32());
        // Logits are `[tokens, vocab]`.
        let width = expected.len() / fed.len();
        let rows = expected.chunks_exact(width).zip(found.chunks_exact(width));
        for ((p, q), &next) in rows.zip(&fed[UNJUDGED..]) {
            sums.add(&log_softmax(p), &log_softmax(q), next);
        }
        so_far(sums.comparison());
    }
    Ok(sums.comparison())
}

/// What a comparison is made of.
#[derive(Default)]
struct Sums {
    tokens: usize,
    /// Sum of negative log-likelihoods of the source.
    source_loss: f64,
    /// The same of the model under test.
    loss: f64,
    kl: f64,
    kl_most: f64,
    /// Tokens at which both find the same token the most likely.
    agreed: usize,
}

impl Sums {
    /// One token, `next`, that the source and the model under test predict with these logarithms of probabilities.
    fn add(&mut self, p: &[f64], q: &[f64], next: u32) {
        let kl: f64 = p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum();
        self.source_loss -= p.get(next as usize).copied().unwrap_or(f64::NAN);
        self.loss -= q.get(next as usize).copied().unwrap_or(f64::NAN);
        // Rounding can make a divergence of 0 slightly negative.
        self.kl += kl.max(0.0);
        self.kl_most = self.kl_most.max(kl);
        self.agreed += usize::from(largest(p) == largest(q));
        self.tokens += 1;
    }

    fn comparison(&self) -> Comparison {
        let count = self.tokens as f64;
        Comparison {
            tokens: self.tokens,
            source_perplexity: (self.source_loss / count).exp(),
            perplexity: (self.loss / count).exp(),
            kl: self.kl / count,
            kl_most: self.kl_most,
            top1_agreement: self.agreed as f64 / count,
        }
    }
}

/// Logarithms of the probabilities that these logits mean.
///
/// The largest is taken off first, so that no exponential overflows.
fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
    let shift = f64::from(most) + sum.ln();
    logits.iter().map(|&x| f64::from(x) - shift).collect()
}

/// The place of the largest, the first of equals.
fn largest(values: &[f64]) -> usize {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_ties_go_to_the_first() {
        let p = log_softmax(&[1.0, 3.0, -100.0, 3.0]);
        assert!((p.iter().map(|p| p.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(largest(&p), 1);
    }
}
