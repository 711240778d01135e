//! The loop that feeds a model its own tokens.
//!
//! The loop knows ids only. A runner that chooses tokens by itself is used while the choice is greedy; its
//! tokens are looked at afterwards, and generation may end within them.

use crate::runner::Runner;
use crate::sampler::{Sampler, Sampling};
use std::ops::{ControlFlow, RangeInclusive};
use std::time::{Duration, Instant};
use tapml_exec::Image;
use tapml_graph::{Error, Result};

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// At most this many new tokens.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Generation ends with any of these tokens, which belongs to the result.
    pub stop_ids: Vec<u32>,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions { max_tokens: 128, sampling: Sampling::default(), stop_ids: Vec::new() }
    }
}

// What was fed in vain behind a stop token costs the next prompt its cache.
/// Tokens that a runner chooses by itself before they are looked at: this many at first, as the time they take tells then.
const AHEAD: RangeInclusive<usize> = 4..=128;

/// How long they should take, so that people see them come and little is done in vain behind the last one.
const SPAN: Duration = Duration::from_millis(100);

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// A stop token or a stop text.
    Stop,
    /// `max_tokens` were made.
    Length,
    /// The context is full.
    Context,
    /// The receiver of tokens asked to end.
    Cancelled,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The new tokens.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that the cache held already.
    pub cached_tokens: usize,
    /// Time until the first new token.
    pub prefill: Duration,
    /// Time from the first to the last new token.
    pub decode: Duration,
}

/// Generates on a runner and keeps its cache between calls: a prompt that begins with the tokens fed so far is fed only
/// from there on.
pub struct Generator<R> {
    /// The model with its cache.
    runner: R,
    /// What the runner's cache holds.
    fed: Vec<u32>,
}

impl<R: Runner> Generator<R> {
    /// A generator; whatever the runner was fed before is forgotten at the first call.
    pub fn new(runner: R) -> Generator<R> {
        Generator { runner, fed: Vec::new() }
    }

    /// The runner.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// Gives the runner back.
    pub fn into_runner(self) -> R {
        self.runner
    }

    /// Takes this image for the prompts that follow, `None` for no image. Fails if the model takes no such image.
    pub fn look_at(&mut self, image: Option<Image>) -> Result<()> {
        self.fed.clear();
        self.runner.look_at(image)
    }

    /// Generates after `prompt`; `on_token` gets each token as it is chosen and may end the generation.
    ///
    /// Fails on an empty prompt, on one that the context does not hold, on bad options, and when the runner fails.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(u32) -> Result<ControlFlow<()>>,
    ) -> Result<Generation> {
        check_prompt(prompt.len(), self.runner.context())?;
        let mut sampler = Sampler::new(options.sampling.clone())?;
        let start = Instant::now();
        let cached_tokens = self.reuse(prompt)?;
        let mut result = Generation {
            ids: Vec::new(),
            finish: Finish::Length,
            prompt_tokens: prompt.len(),
            cached_tokens,
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
        };
        let mut text = prompt.to_vec();
        let mut ahead = *AHEAD.start();
        let mut follows = options.sampling.is_greedy();
        'more: while result.ids.len() < options.max_tokens {
            // The token just chosen would have to be fed at a position that does not exist.
            if text.len() > self.runner.context() {
                result.finish = Finish::Context;
                break;
            }
            // From the second new token on a runner may go on by itself.
            if follows && !result.ids.is_empty() {
                let left = options.max_tokens - result.ids.len();
                let began = Instant::now();
                let Some(ids) = self.generate_greedily(&text, left.min(ahead))? else {
                    follows = false;
                    continue;
                };
                ahead = next_ahead(ahead, began.elapsed());
                for id in ids {
                    text.push(id);
                    result.ids.push(id);
                    if let Some(finish) = finish_reason(id, options, on_token)? {
                        result.finish = finish;
                        break 'more;
                    }
                }
                continue;
            }
            let logits = self.feed(&text)?;
            let id = sampler.sample(&logits, &text)?;
            text.push(id);
            result.ids.push(id);
            if result.ids.len() == 1 {
                result.prefill = start.elapsed();
            }
            if let Some(finish) = finish_reason(id, options, on_token)? {
                result.finish = finish;
                break;
            }
        }
        result.decode = start.elapsed().saturating_sub(result.prefill);
        Ok(result)
    }

    /// Keeps the cache if the prompt goes on where it ends, else empties it; gives the count of tokens kept.
    fn reuse(&mut self, prompt: &[u32]) -> Result<usize> {
        let kept = self.fed.len();
        // At least one token must be left to feed: logits come from a step.
        let goes_on = kept == self.runner.position() && kept < prompt.len() && prompt.starts_with(&self.fed);
        if goes_on && kept > 0 {
            return Ok(kept);
        }
        self.fed.clear();
        self.runner.reset()?;
        Ok(0)
    }

    /// Lets the runner choose up to `count` tokens by itself behind `text`, of which the last token was not fed yet. It may
    /// be fed more tokens than the generation takes; then the next prompt begins anew.
    fn generate_greedily(&mut self, text: &[u32], count: usize) -> Result<Option<Vec<u32>>> {
        let room = self.runner.context().saturating_sub(self.fed.len());
        let [fed @ .., first] = text else { return Ok(None) };
        if fed.len() != self.fed.len() || room == 0 {
            return Ok(None);
        }
        let fed = std::mem::take(&mut self.fed);
        let ids = self.runner.generate_greedily(*first, count.min(room))?;
        self.fed = fed;
        if let Some([taken @ .., _]) = ids.as_deref() {
            self.fed.push(*first);
            self.fed.extend_from_slice(taken);
        }
        Ok(ids.filter(|ids| !ids.is_empty()))
    }

    /// Feeds the part of `text` that was not fed yet; gives the logits after it.
    fn feed(&mut self, text: &[u32]) -> Result<Vec<f32>> {
        let new = &text[self.fed.len()..];
        // Forgotten unless the step succeeds: after a failure the runner's cache is not to be trusted.
        let fed = std::mem::take(&mut self.fed);
        let logits = self.runner.forward(new)?;
        self.fed = fed;
        self.fed.extend_from_slice(new);
        Ok(logits)
    }
}

/// How many tokens are to be chosen at once, when so many took this long.
fn next_ahead(ahead: usize, took: Duration) -> usize {
    if took < SPAN / 2 {
        (ahead * 2).min(*AHEAD.end())
    } else if took > SPAN * 2 {
        (ahead / 2).max(1)
    } else {
        ahead
    }
}

/// A token is told before it is looked at, so that the receiver has a stop token too.
fn finish_reason(
    id: u32,
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(u32) -> Result<ControlFlow<()>>,
) -> Result<Option<Finish>> {
    let cancelled = on_token(id)?.is_break();
    if options.stop_ids.contains(&id) {
        return Ok(Some(Finish::Stop));
    }
    Ok(cancelled.then_some(Finish::Cancelled))
}

/// At least one token, at most as many as the context holds.
pub(crate) fn check_prompt(tokens: usize, context: usize) -> Result<()> {
    if tokens == 0 {
        return Err(
            Error::invalid("the prompt has no tokens").with_hint("give at least one token to continue")
        );
    }
    if tokens > context {
        return Err(Error::invalid(format!("the prompt has {tokens} tokens, the context holds {context}"))
            .with_hint("shorten the prompt, or use a model with a longer context"));
    }
    Ok(())
}
