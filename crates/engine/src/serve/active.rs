//! A request on the engine's thread: how its tokens are chosen, and what is told of it.

use super::inbox::Arrival;
use super::request::{
    Candidate, PromptToken, Request, RequestEvent, RequestOptions, SampledToken, TokenMask, Usage,
};
use crate::generate::Finish;
use crate::panics;
use crate::sampler::{Sampler, check_logits};
use std::ops::ControlFlow;
use std::time::Instant;
use tapml_graph::{Error, Result};

/// Takes the events of a request.
type Receiver = Box<dyn FnMut(RequestEvent) -> ControlFlow<()> + Send>;

/// A mask with the tokens that it allows next.
struct Mask {
    mask: Box<dyn TokenMask>,
    words: Vec<u32>,
    /// What filling the words gave; `None` before.
    filled: Option<Result<()>>,
}

/// See the module.
pub struct Active {
    pub options: RequestOptions,
    sampler: Sampler,
    mask: Option<Mask>,
    receiver: Receiver,
    /// The prompt's tokens with their log probabilities so far.
    prompt: Vec<PromptToken>,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    new_tokens: usize,
    arrived: Instant,
    first_step: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    /// Failed steps that it was in.
    pub failures: usize,
}

/// The logits of a sequence after a step.
pub struct SequenceLogits<'a> {
    /// Row after row.
    pub logits: Vec<f32>,
    /// The position of the first row.
    pub start: usize,
    /// The sequence's tokens.
    pub text: &'a [u32],
    /// Whether the last row is that of the last token.
    pub chooses: bool,
}

/// Whether a request goes on.
#[derive(Debug)]
pub enum Continuation {
    /// It does.
    GoesOn,
    /// It ends.
    Ends(Finish),
    /// It fails.
    Fails(Error),
    /// Nobody listens any more.
    Left,
}

impl Active {
    /// The state of a request that was taken; `prompt` are its tokens.
    pub fn new(arrival: Arrival, prompt: &[u32]) -> Active {
        let Request { options, mask, events, .. } = arrival.request;
        let first = prompt.first().map(|&id| SampledToken { id, logprob: None, top: Vec::new() });
        Active {
            sampler: arrival.sampler,
            mask: mask.map(|mask| Mask { mask, words: Vec::new(), filled: None }),
            receiver: events,
            prompt: first.filter(|_| options.prompt_logprobs.is_some()).into_iter().collect(),
            prompt_tokens: prompt.len(),
            cached_tokens: 0,
            new_tokens: 0,
            arrived: arrival.at,
            first_step: None,
            first_token: None,
            last_token: None,
            failures: 0,
            options,
        }
    }

    /// A step with rows of it begins.
    pub fn begin_step(&mut self, now: Instant) -> bool {
        let first = self.first_step.is_none();
        self.first_step.get_or_insert(now);
        first
    }

    pub fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    /// Works out which tokens are allowed next, if that is not known yet.
    pub fn fill_mask(&mut self, vocab: usize) {
        let Some(Mask { mask, words, filled: filled @ None }) = &mut self.mask else { return };
        words.clear();
        words.resize(vocab.div_ceil(32), 0);
        *filled = Some(panics::catch(|| mask.fill(words)).unwrap_or_else(|| Err(mask_panic())));
    }

    /// Reads the log probabilities of the prompt from the rows, and chooses the next token. Tells nothing.
    pub fn choose(&mut self, rows: SequenceLogits, vocab: usize) -> Result<Option<SampledToken>> {
        let SequenceLogits { mut logits, start, text, chooses } = rows;
        if let Some(top) = self.options.prompt_logprobs {
            for (row, position) in logits.chunks_exact(vocab).zip(start..) {
                // SequenceLogits may be computed again after a preemption.
                if position + 1 == self.prompt.len() && position + 1 < self.prompt_tokens {
                    check_logits(row)?;
                    self.prompt.push(with_logprobs(row, text[position + 1], top));
                }
            }
        }
        if !chooses || self.options.max_tokens == 0 {
            return Ok(None);
        }
        let at = logits.len().checked_sub(vocab).ok_or_else(|| Error::bug("a step gave no logits"))?;
        let row = &mut logits[at..];
        self.sampler.add_bias(row);
        let before = self.options.logprobs.map(|_| row.to_vec());
        if self.new_tokens < self.options.min_tokens {
            let stops = self.options.stop_ids.iter();
            stops.for_each(|id| row.get_mut(*id as usize).into_iter().for_each(|l| *l = f32::NEG_INFINITY));
        }
        self.fill_mask(vocab);
        if let Some(Mask { words, filled, .. }) = &mut self.mask {
            filled.take().unwrap_or(Ok(()))?;
            let allowed = |id: usize| words[id / 32] >> (id % 32) & 1 == 1;
            (0..vocab).filter(|id| !allowed(*id)).for_each(|id| row[id] = f32::NEG_INFINITY);
        }
        let id = self.sampler.sample_biased(row, text)?;
        Ok(Some(match (before, self.options.logprobs) {
            (Some(row), Some(top)) => with_logprobs(&row, id, top),
            _ => SampledToken { id, logprob: None, top: Vec::new() },
        }))
    }

    /// Tells the prompt's log probabilities, when all are there.
    pub fn report_prompt(&mut self) -> Continuation {
        if self.options.prompt_logprobs.is_none() || self.prompt.len() < self.prompt_tokens {
            return Continuation::GoesOn;
        }
        let prompt = std::mem::take(&mut self.prompt);
        if self.report(RequestEvent::Prompt(prompt)) { Continuation::GoesOn } else { Continuation::Left }
    }

    /// Tells a new token, and whether the request goes on behind it. `room` says whether the context has place for it.
    pub fn take_token(&mut self, token: SampledToken, room: bool, now: Instant) -> Continuation {
        let id = token.id;
        self.new_tokens += 1;
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        let accepted = self.mask.as_mut().map(|mask| {
            mask.filled = None;
            panics::catch(|| mask.mask.accept(id)).unwrap_or_else(|| Err(mask_panic()))
        });
        let complete = match accepted.transpose() {
            Ok(flow) => flow.is_some_and(|flow| flow.is_break()),
            Err(error) => return Continuation::Fails(error),
        };
        if !self.report(RequestEvent::Token(token)) {
            return Continuation::Left;
        }
        if complete || self.options.stop_ids.contains(&id) {
            Continuation::Ends(Finish::Stop)
        } else if self.new_tokens >= self.options.max_tokens {
            Continuation::Ends(Finish::Length)
        } else if !room {
            Continuation::Ends(Finish::Context)
        } else {
            Continuation::GoesOn
        }
    }

    /// Tells the end.
    pub fn finish(mut self, finish: Finish, now: Instant) {
        let usage = self.usage(now);
        self.report(RequestEvent::Finished(finish, usage));
    }

    /// Tells the failure.
    pub fn fail(mut self, error: Error) {
        self.report(RequestEvent::Failed(error));
    }

    fn usage(&self, now: Instant) -> Usage {
        let first_step = self.first_step.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            new_tokens: self.new_tokens,
            queued: first_step.saturating_duration_since(self.arrived),
            prefill: first_token.saturating_duration_since(first_step),
            decode: self.last_token.unwrap_or(now).saturating_duration_since(first_token),
        }
    }

    /// False if the receiver wants no more, or panicked.
    fn report(&mut self, event: RequestEvent) -> bool {
        panics::catch(|| (self.receiver)(event)).is_some_and(|flow| flow.is_continue())
    }
}

fn mask_panic() -> Error {
    Error::bug("the mask of the tokens panicked")
}

/// A token with its log probability and the `top` most likely ones. Sums run in f64 and in a fixed order.
fn with_logprobs(logits: &[f32], id: u32, top: usize) -> SampledToken {
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, l| l.max(most));
    let most = f64::from(most);
    let sum: f64 = logits.iter().map(|l| libm::exp(f64::from(*l) - most)).sum();
    let whole = most + libm::log(sum);
    let logprob = |id: u32| (f64::from(logits[id as usize]) - whole) as f32;
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if top > 0 && top < order.len() {
        // A selection, not a sort: vocabularies are large.
        order.select_nth_unstable_by(top - 1, by_logit);
    }
    order.truncate(top);
    order.sort_unstable_by(by_logit);
    let top = order.into_iter().map(|id| Candidate { id, logprob: logprob(id) }).collect();
    SampledToken { id, logprob: Some(logprob(id)), top }
}
