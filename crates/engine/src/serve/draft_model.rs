//! Guesses of a small model, for texts that a large one goes on with.
//!
//! The small model guesses its most likely tokens. Its cache lies in pages of its own and follows the texts: what it has computed
//! for a wrong guess is computed anew.

use super::batch::{BatchLimits, BatchRunner, LogitDetail, StepLogits};
use super::scheduler::{NewSequence, Scheduler, SchedulerOptions, SequenceId};
use crate::sampler::{greatest, greatest_of_top};
use std::collections::BTreeMap;
use tapml_constraint::panics;
use tapml_graph::{Error, Result};

/// Says which token is proposed behind a text, guessed tokens included, in the place of the small model's guess.
pub type ReplaceGuess = Box<dyn FnMut(&[u32], u32) -> u32 + Send>;

/// Speculative decoding with a second, smaller model of the same vocabulary.
pub struct DraftModel {
    /// The model.
    pub runner: Box<dyn BatchRunner>,
    /// At most this many tokens are guessed at once, each in a step of the small model.
    pub tokens: usize,
    /// Only while at most this many requests run.
    pub requests: usize,
    /// Proposes other tokens than the small model does, which runs all the same: for measurements of a known acceptance.
    pub replace: Option<ReplaceGuess>,
}

/// A small model that failed so often is not asked any more.
const FAILURES: usize = 3;

/// A text that is to be guessed on.
pub struct DraftWish<'a> {
    /// Its sequence.
    pub id: SequenceId,
    /// Its tokens.
    pub text: &'a [u32],
    /// At most so many are guessed.
    pub most: usize,
}

/// See the module.
pub struct ModelDrafter {
    runner: Box<dyn BatchRunner>,
    limits: BatchLimits,
    scheduler: Scheduler,
    tokens: usize,
    pub requests: usize,
    replace: Option<ReplaceGuess>,
    failures: usize,
}

impl ModelDrafter {
    /// Fails if the small model has no place for anything, or another vocabulary.
    pub fn new(model: DraftModel, vocab: usize) -> Result<ModelDrafter> {
        let DraftModel { runner, tokens, requests, replace } = model;
        let limits = runner.limits().usable()?;
        if limits.vocab != vocab {
            let message = format!("the draft model has {} tokens, the model {vocab}", limits.vocab);
            return Err(Error::invalid(message).with_hint("both must have the same tokenizer"));
        }
        if limits.states > 0 {
            let text = "the draft model is recurrent: its state holds guesses that turn out wrong";
            return Err(Error::unsupported(text).with_hint("take a draft model with attention alone"));
        }
        // Pages of wrong guesses must not be found by others.
        let options = SchedulerOptions { prompt_rows: limits.rows, prefix_cache: false };
        let scheduler = Scheduler::new(limits, options);
        Ok(ModelDrafter { runner, limits, scheduler, tokens, requests, replace, failures: 0 })
    }

    /// Forgets a sequence.
    pub fn remove(&mut self, id: SequenceId) {
        self.scheduler.remove(id);
    }

    /// Guesses what follows the texts. A text that is new takes some calls until it is computed; nothing is guessed before.
    pub fn guess(&mut self, wishes: &[DraftWish]) -> BTreeMap<SequenceId, Vec<u32>> {
        if self.failures > FAILURES {
            return BTreeMap::new();
        }
        let mut most = BTreeMap::new();
        for wish in wishes {
            // Guesses are computed behind the text, all but the last one.
            let room = (self.limits.context + 1).saturating_sub(wish.text.len());
            if room == 0 {
                self.scheduler.remove(wish.id);
                continue;
            }
            most.insert(wish.id, wish.most.min(self.tokens).min(room));
            if !self.scheduler.set_text(wish.id, wish.text) {
                let prompt = wish.text.to_vec();
                let new = NewSequence {
                    prompt,
                    prompt_logits: false,
                    last_logits: true,
                    salt: String::new(),
                    // It guesses from the tokens alone.
                    images: Vec::new(),
                };
                self.scheduler.submit(wish.id, new);
            }
        }
        let mut guesses: BTreeMap<SequenceId, Vec<u32>> = BTreeMap::new();
        for _ in 0..most.values().copied().max().unwrap_or(0) {
            if self.step(&most, &mut guesses).is_err() {
                self.failures += 1;
                self.scheduler.lose_pages();
                if panics::catch(|| self.runner.reset()).is_none_or(|reset| reset.is_err()) {
                    self.failures = usize::MAX;
                }
                break;
            }
        }
        guesses
    }

    /// Computes one step, and guesses a token for each text that is computed to its end.
    fn step(
        &mut self,
        most: &BTreeMap<SequenceId, usize>,
        guesses: &mut BTreeMap<SequenceId, Vec<u32>>,
    ) -> Result<()> {
        let mut step = self.scheduler.plan(None);
        step.batch.sequences.iter_mut().for_each(|rows| rows.detail = LogitDetail::Top(1));
        if step.ids.is_empty() {
            return Ok(());
        }
        let logits = panics::catch(|| self.runner.step(&step.batch));
        let logits = logits.unwrap_or_else(|| Err(Error::bug("the draft model panicked")))?;
        self.scheduler.complete(&step);
        for (id, logits) in step.ids.iter().zip(logits) {
            let guess = guesses.entry(*id).or_default();
            let most = most.get(id).copied().unwrap_or(0);
            if logits.rows(self.limits.vocab) == 0 || guess.len() >= most {
                continue;
            }
            let token = match &logits {
                StepLogits::Full(logits) => greatest(logits)?,
                StepLogits::Top(top) => greatest_of_top(&top.tokens)?,
            };
            let token = match &mut self.replace {
                Some(replace) => replace(self.scheduler.ids(*id), token),
                None => token,
            };
            guess.push(token);
            // The last guess is not computed.
            if guess.len() < most {
                self.scheduler.push(*id, token);
            }
        }
        Ok(())
    }
}
