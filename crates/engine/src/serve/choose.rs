//! Which tokens follow from the logits of a step, for one request. Nothing is reported here, so that many requests can choose
//! at once.

use super::batch::{BatchLimits, LogitDetail, PartSums, StepLogits, TopRows};
use super::draft::DraftPace;
use super::request::{Candidate, PromptToken, RequestOptions, SampledToken, TokenMask};
use crate::generate::Finish;
use crate::sampler::{Exclusions, PartialRow, Sampler, check_logits};
use std::ops::{ControlFlow, Range};
use tapml_constraint::panics;
use tapml_graph::{Error, Result};

/// Likely tokens among which a greedy choice with penalties looks: as many as runners give.
const LIKELY: usize = 32;

/// A mask with the tokens that it allows next.
struct Mask {
    mask: Box<dyn TokenMask>,
    words: Vec<u32>,
    /// What filling the words gave; `None` before.
    filled: Option<Result<()>>,
}

impl Mask {
    /// Works out which tokens are allowed next, if that is not known yet.
    fn fill(&mut self, vocab: usize) {
        let Mask { mask, words, filled: filled @ None } = self else { return };
        words.clear();
        words.resize(vocab.div_ceil(32), 0);
        *filled = Some(panics::catch(|| mask.fill(words)).unwrap_or_else(|| Err(mask_panic())));
    }

    /// A bit for each token that is allowed next.
    fn allowed_words(&mut self, vocab: usize) -> Result<&[u32]> {
        self.fill(vocab);
        self.filled.clone().unwrap_or(Ok(())).map(|()| self.words.as_slice())
    }

    fn accept(&mut self, id: u32) -> Result<ControlFlow<()>> {
        self.filled = None;
        panics::catch(|| self.mask.accept(id)).unwrap_or_else(|| Err(mask_panic()))
    }
}

/// See the module.
pub struct Chooser {
    pub options: RequestOptions,
    pub prompt_tokens: usize,
    /// New tokens so far.
    pub new_tokens: usize,
    sampler: Sampler,
    mask: Option<Mask>,
    pace: DraftPace,
    /// The prompt's tokens with their log probabilities so far, if they are wanted.
    prompt: Vec<PromptToken>,
}

/// The logits of a sequence after a step.
pub struct SequenceLogits<'a> {
    /// Which sequence of the step it is.
    pub index: usize,
    /// Those of its wanted rows.
    pub logits: StepLogits,
    /// The position of the first row.
    pub start: usize,
    /// The sequence's tokens.
    pub text: &'a [u32],
    /// Tokens behind them that the last rows were computed for.
    pub draft: &'a [u32],
    /// Whether the text is computed to its end, so that tokens follow.
    pub complete: bool,
}

/// What followed.
pub struct Chosen {
    /// The next tokens: those of the draft that were right, and one more.
    pub tokens: Vec<SampledToken>,
    /// Why none follows any more, if so.
    pub finish: Result<Option<Finish>>,
    /// Why logits that were needed could not be read, if so. The next token is not chosen then, and nothing was drawn for it.
    pub unread: Option<Error>,
    /// Tokens of the draft that were compared with the choice: those up to the first wrong one.
    pub compared: usize,
}

/// Gives logits of the step: these columns of a wanted row of the sequence.
pub type ReadLogits<'a> = dyn Fn(usize, Range<usize>) -> Result<Vec<f32>> + 'a;

/// Logits that are read when they are needed.
struct LogitReader<'a> {
    read: &'a ReadLogits<'a>,
    vocab: usize,
    /// Why some could not be read.
    failed: Option<Error>,
}

impl LogitReader<'_> {
    fn read(&mut self, row: usize, columns: Range<usize>) -> Result<Vec<f32>> {
        let expected = columns.len();
        let logits = (self.read)(row, columns).and_then(|logits| {
            let wrong = || Error::bug("the runner gave another number of logits than it was asked for");
            Some(logits).filter(|logits| logits.len() == expected).ok_or_else(wrong)
        });
        logits.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

impl Chooser {
    pub fn new(
        options: RequestOptions,
        sampler: Sampler,
        mask: Option<Box<dyn TokenMask>>,
        prompt: &[u32],
    ) -> Chooser {
        let first = prompt.first().map(|&id| SampledToken { id, logprob: None, top: Vec::new() });
        Chooser {
            sampler,
            mask: mask.map(|mask| Mask { mask, words: Vec::new(), filled: None }),
            pace: DraftPace::default(),
            prompt: first.filter(|_| options.prompt_logprobs.is_some()).into_iter().collect(),
            prompt_tokens: prompt.len(),
            new_tokens: 0,
            options,
        }
    }

    pub fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    /// How much it must see of the next row's logits.
    pub fn logit_detail(&self) -> LogitDetail {
        let needed =
            self.sampler.top_needed().filter(|_| self.mask.is_none() && self.options.logprobs.is_none());
        match (needed, self.sampler.partial_temperature()) {
            _ if !self.has_partial_logprobs() => LogitDetail::Full,
            // Where an end is not allowed yet, others stand behind it.
            (Some(needed), _) => LogitDetail::Top(needed + self.forbidden_ids().len()),
            (None, Some(0.0)) if self.options.logprobs.is_some() => LogitDetail::Sums { temperature: 1.0 },
            (None, Some(0.0)) => LogitDetail::Top(LIKELY),
            (None, Some(temperature)) => LogitDetail::Sums { temperature },
            (None, None) => LogitDetail::Full,
        }
    }

    /// Whether the log probabilities that are wanted follow from likely tokens and sums at temperature 1.
    fn has_partial_logprobs(&self) -> bool {
        let RequestOptions { logprobs, prompt_logprobs, sampling, .. } = &self.options;
        let served = |top: &usize| {
            *top <= LIKELY && sampling.logit_bias.is_empty() && [0.0, 1.0].contains(&sampling.temperature)
        };
        prompt_logprobs.is_none() && logprobs.as_ref().is_none_or(served)
    }

    /// Tokens that would end the text too early.
    fn forbidden_ids(&self) -> &[u32] {
        if self.new_tokens < self.options.min_tokens { &self.options.stop_ids } else { &[] }
    }

    /// Works out which tokens are allowed next, if that is not known yet.
    pub fn fill_mask(&mut self, vocab: usize) {
        self.mask.iter_mut().for_each(|mask| mask.fill(vocab));
    }

    /// How many tokens to guess.
    pub fn draft_length(&mut self) -> usize {
        // One token is chosen behind the guesses.
        self.pace.next_length().min(self.options.max_tokens.saturating_sub(self.new_tokens + 1))
    }

    /// The prompt's log probabilities, one time, when all are there.
    pub fn take_prompt(&mut self) -> Option<Vec<PromptToken>> {
        let complete = !self.prompt.is_empty() && self.prompt.len() == self.prompt_tokens;
        complete.then(|| std::mem::take(&mut self.prompt))
    }

    /// Reads the log probabilities of the prompt from the rows, and chooses what follows.
    ///
    /// A draft is one guess for each place, so the rule of Leviathan et al. 2023 is to choose from the row as ever, and to go on
    /// if the choice is the guess: the tokens are those that would be chosen without a draft.
    pub fn choose(&mut self, rows: SequenceLogits, limits: &BatchLimits, read: &ReadLogits) -> Chosen {
        let mut tokens = Vec::new();
        let mut reader = LogitReader { read, vocab: limits.vocab, failed: None };
        let drafted = rows.draft.len();
        let finish = self.choose_into(rows, limits, &mut reader, &mut tokens);
        // Logits that could not be read say nothing of the request.
        let finish = if reader.failed.is_some() { Ok(None) } else { finish };
        let compared = drafted.min(tokens.len());
        Chosen { tokens, finish, unread: reader.failed, compared }
    }

    fn choose_into(
        &mut self,
        rows: SequenceLogits,
        limits: &BatchLimits,
        reader: &mut LogitReader,
        tokens: &mut Vec<SampledToken>,
    ) -> Result<Option<Finish>> {
        let SequenceLogits { mut logits, start, text, draft, complete, .. } = rows;
        self.read_prompt(&logits, start, text, limits.vocab)?;
        if !complete {
            return Ok(None);
        }
        if self.options.max_tokens == 0 {
            return Ok(Some(Finish::Length));
        }
        let first = logits.rows(limits.vocab).checked_sub(draft.len() + 1);
        let first = first.ok_or_else(|| Error::bug("a step gave too few logits"))?;
        let mut text = text.to_vec();
        for at in 0..=draft.len() {
            let token = match &mut logits {
                StepLogits::Full(logits) => {
                    let start = (first + at) * limits.vocab;
                    self.choose_token(&mut logits[start..start + limits.vocab], &text)?
                }
                StepLogits::Top(top) => match self.choose_of_top((top, first + at), &text, reader)? {
                    Some(token) => token,
                    None => self.choose_token(&mut reader.read(first + at, 0..limits.vocab)?, &text)?,
                },
            };
            text.push(token.id);
            let finish = self.take_token(token.id, text.len() <= limits.context);
            let as_drafted = draft.get(at) == Some(&token.id);
            // A token that the mask does not take is not told.
            if finish.is_ok() {
                tokens.push(token);
            }
            if !as_drafted || !matches!(finish, Ok(None)) {
                self.pace.note(draft.len(), at + usize::from(as_drafted));
                return finish;
            }
        }
        self.pace.note(draft.len(), draft.len());
        Ok(None)
    }

    fn read_prompt(&mut self, logits: &StepLogits, start: usize, text: &[u32], vocab: usize) -> Result<()> {
        let (Some(top), StepLogits::Full(logits)) = (self.options.prompt_logprobs, logits) else {
            return Ok(());
        };
        for (row, position) in logits.chunks_exact(vocab).zip(start..) {
            // Rows may be computed again after a preemption.
            if position + 1 == self.prompt.len() && position + 1 < self.prompt_tokens {
                check_logits(row)?;
                self.prompt.push(with_logprobs(row, text[position + 1], top));
            }
        }
        Ok(())
    }

    /// The next token of those that a row has most likely; `None` if all logits decide.
    fn choose_of_top(
        &mut self,
        (top, row): (&TopRows, usize),
        text: &[u32],
        reader: &mut LogitReader,
    ) -> Result<Option<SampledToken>> {
        let known = partial_row(top, row, reader.vocab)?;
        let is_early = self.new_tokens < self.options.min_tokens;
        let ids: &[u32] = if is_early { &self.options.stop_ids } else { &[] };
        let allowed = self.mask.as_mut().map(|mask| mask.allowed_words(reader.vocab)).transpose()?;
        let excluded = Exclusions { ids, allowed };
        let Some(count) = self.options.logprobs else {
            let id = if allowed.is_none() && self.sampler.top_needed().is_some() {
                Some(self.sampler.sample_top(&known, excluded)?)
            } else {
                self.sampler.sample_partial(&known, text, excluded, &mut |ids| reader.read(row, ids))?
            };
            return Ok(id.map(|id| SampledToken { id, logprob: None, top: Vec::new() }));
        };
        let Some(log_sum) = known.log_sum().filter(|_| count <= known.tokens.len()) else { return Ok(None) };
        // Nothing is drawn if the token's own logit cannot be read.
        let mut sampler = self.sampler.clone();
        let id = sampler.sample_partial(&known, text, excluded, &mut |ids| reader.read(row, ids))?;
        let Some(id) = id else { return Ok(None) };
        let place = known.tokens.iter().position(|token| *token == id);
        let logit = match place.and_then(|place| known.logits.get(place)) {
            Some(logit) => *logit,
            None => reader.read(row, id as usize..id as usize + 1)?.first().copied().unwrap_or(f32::NAN),
        };
        self.sampler = sampler;
        let logprob = |logit: f32| (f64::from(logit) - log_sum) as f32;
        let likely = known.tokens.iter().zip(known.logits).take(count);
        let top = likely.map(|(&id, &logit)| Candidate { id, logprob: logprob(logit) }).collect();
        Ok(Some(SampledToken { id, logprob: Some(logprob(logit)), top }))
    }

    fn choose_token(&mut self, row: &mut [f32], text: &[u32]) -> Result<SampledToken> {
        self.sampler.add_bias(row);
        let before = self.options.logprobs.map(|top| (row.to_vec(), top));
        for id in self.forbidden_ids() {
            row.get_mut(*id as usize).into_iter().for_each(|logit| *logit = f32::NEG_INFINITY);
        }
        if let Some(mask) = &mut self.mask {
            let words = mask.allowed_words(row.len())?;
            let is_allowed = |id: usize| words[id / 32] >> (id % 32) & 1 == 1;
            let forbidden = row.iter_mut().enumerate().filter(|(id, _)| !is_allowed(*id));
            forbidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        }
        let id = self.sampler.sample_biased(row, text)?;
        Ok(match before {
            Some((row, top)) => with_logprobs(&row, id, top),
            None => SampledToken { id, logprob: None, top: Vec::new() },
        })
    }

    /// Takes a token that was chosen; says whether none follows. `room` says whether the context has place for it.
    fn take_token(&mut self, id: u32, room: bool) -> Result<Option<Finish>> {
        self.new_tokens += 1;
        let accepted = self.mask.as_mut().map(|mask| mask.accept(id));
        let complete = accepted.transpose()?.is_some_and(|flow| flow.is_break());
        Ok(if complete || self.options.stop_ids.contains(&id) {
            Some(Finish::Stop)
        } else if self.new_tokens >= self.options.max_tokens {
            Some(Finish::Length)
        } else if !room {
            Some(Finish::Context)
        } else {
            None
        })
    }
}

/// What is known of a row of a step.
fn partial_row(top: &TopRows, row: usize, vocab: usize) -> Result<PartialRow<'_>> {
    let few = || Error::bug("a step gave too few logits");
    let range = row * top.count..(row + 1) * top.count;
    let tokens = top.tokens.get(range.clone()).ok_or_else(few)?;
    let logits = top.logits.get(range).ok_or_else(few)?;
    let Some(PartSums { part, maxima, sums }) = &top.sums else {
        return Ok(PartialRow { tokens, logits, maxima: &[], sums: &[], part: vocab, vocab });
    };
    let parts = vocab.div_ceil((*part).max(1));
    let range = row * parts..(row + 1) * parts;
    let maxima = maxima.get(range.clone()).ok_or_else(few)?;
    let sums = sums.get(range).ok_or_else(few)?;
    Ok(PartialRow { tokens, logits, maxima, sums, part: *part, vocab })
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
