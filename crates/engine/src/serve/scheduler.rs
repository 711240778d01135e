//! Which rows a step computes: a state machine without threads, without a clock and without a model.
//!
//! Sequences are numbered in the order of their arrival. All that run are older than all that wait: the oldest is admitted
//! first, and the youngest gives its pages up first, so that the oldest always goes on. A sequence that gave its pages up
//! waits again; its tokens stay, and their keys and values are computed anew.

mod page_lists;
mod states;
#[cfg(test)]
mod tests;

use super::batch::{Batch, BatchLimits, LogitDetail, NO_SLOT, SequenceRows, WantedLogits};
use super::images::PlacedImage;
use super::pages::{PageKey, PagePool};
use super::state_slots::StateSlots;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The number of a sequence; older ones have lesser numbers.
pub type SequenceId = u64;

/// Most rows of one sequence and step whose logits are all wanted: the logits of one row are many.
const LOGIT_ROWS: usize = 128;

/// Of so many pages, one is left free by admission while others run: they need pages soon.
const SPARE: usize = 32;

/// What the scheduler is told of a new sequence.
#[derive(Clone, Debug)]
pub struct NewSequence {
    /// The prompt, at least one token and at most as many as the context.
    pub prompt: Vec<u32>,
    /// Whether the logits of the prompt's rows are wanted.
    pub prompt_logits: bool,
    /// Whether those of the last row are: no if nothing is to be generated.
    pub last_logits: bool,
    /// Sequences of different salts share no pages.
    pub salt: String,
    /// Images that tokens of the prompt stand for.
    pub images: Vec<PlacedImage>,
}

/// A sequence.
#[derive(Debug)]
struct Sequence {
    /// The prompt and what was generated.
    ids: Vec<u32>,
    /// Tokens of the prompt.
    prompt: usize,
    /// Images that some of them stand for.
    images: Vec<PlacedImage>,
    /// Tokens whose keys and values lie in the pages.
    computed: usize,
    /// Guesses of the tokens behind `ids`, to be computed with the last one.
    draft: Vec<u32>,
    pages: Vec<u32>,
    /// So many of the first pages were given back, as no row behind the computed ones reads them.
    behind: usize,
    /// The slot of the state behind the computed tokens, and the one that the planned step writes.
    state: StateSlots,
    /// What the first page's key begins with.
    root: PageKey,
    /// Keys of the full pages of `ids`.
    keys: Vec<PageKey>,
    /// Full pages that the pool knows of.
    kept: usize,
    /// SequenceLogits of the prompt from here on give logits that are still wanted; they are not taken from the cache.
    logits_from: usize,
    last_logits: bool,
    /// Tokens that were found in the cache when it first ran.
    cached: Option<usize>,
}

/// The rows of a step.
#[derive(Debug, Default)]
pub struct PlannedStep {
    /// The sequences of `batch`, in its order.
    pub ids: Vec<SequenceId>,
    /// What to compute.
    pub batch: Batch,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens that were looked for in the prefix cache.
    pub prefix_queries: u64,
    /// Of these, tokens that were found.
    pub prefix_hits: u64,
    /// Sequences that gave their pages up.
    pub preemptions: u64,
}

/// How it may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Most rows of prompts in a step.
    pub prompt_rows: usize,
    /// Whether full pages are kept for other sequences.
    pub prefix_cache: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Scheduler {
    limits: BatchLimits,
    options: SchedulerOptions,
    pool: PagePool,
    /// Slots of states; known ones stand behind a full page.
    slots: PagePool,
    sequences: BTreeMap<SequenceId, Sequence>,
    waiting: BTreeSet<SequenceId>,
    running: BTreeSet<SequenceId>,
    counts: Counts,
}

impl Sequence {
    /// Tokens that are not computed.
    fn pending(&self) -> usize {
        self.ids.len() - self.computed
    }

    /// The next `count` rows with so many tokens of the draft behind them, and whether their logits are wanted.
    fn rows(&self, count: usize, drafted: usize, page: usize) -> SequenceRows {
        let end = self.computed + count;
        let wanted = if drafted > 0 || self.logits_from < end.min(self.prompt) {
            WantedLogits::All
        } else if end == self.ids.len() && self.last_logits {
            WantedLogits::Last
        } else {
            WantedLogits::Nothing
        };
        let slot = |slot: Option<u32>| slot.unwrap_or(NO_SLOT);
        SequenceRows {
            states: [slot(self.state.now), slot(self.state.next)],
            prompt: self.prompt,
            ids: [&self.ids[self.computed..end], &self.draft[..drafted]].concat(),
            start: self.computed,
            pages: self.pages[..(end + drafted).div_ceil(page)].to_vec(),
            wanted,
            detail: LogitDetail::Full,
            images: self.images_within(self.computed..end).cloned().collect(),
        }
    }

    /// Computes the keys of pages that became full.
    fn extend_keys(&mut self, page: usize) {
        for (at, full) in self.ids.chunks_exact(page).enumerate().skip(self.keys.len()) {
            let key = self.keys.last().unwrap_or(&self.root).next(full);
            let images = self.images_within(at * page..(at + 1) * page);
            // Tokens of two images are alike.
            let key = images.fold(key, |key, image| key.with_image(image));
            self.keys.push(key);
        }
    }

    /// The images that tokens of this range stand for.
    fn images_within(&self, range: Range<usize>) -> impl Iterator<Item = &PlacedImage> {
        self.images.iter().filter(move |image| !image.tokens_within(&range).is_empty())
    }
}

impl Scheduler {
    /// A scheduler for a runner of these limits, all of them at least 1.
    pub fn new(limits: BatchLimits, options: SchedulerOptions) -> Scheduler {
        Scheduler {
            limits,
            options,
            pool: PagePool::new(limits.pages),
            slots: PagePool::new(limits.states),
            sequences: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Puts a sequence behind all others. `id` is above those before it.
    pub fn submit(&mut self, id: SequenceId, new: NewSequence) {
        let root = PageKey::root(&new.salt);
        let long = self.limits.length_limit.is_some_and(|limit| new.prompt.len() > limit);
        let sequence = Sequence {
            root: if long { root.for_length(new.prompt.len()) } else { root },
            state: StateSlots::default(),
            prompt: new.prompt.len(),
            images: new.images,
            logits_from: if new.prompt_logits { 0 } else { usize::MAX },
            ids: new.prompt,
            computed: 0,
            draft: Vec::new(),
            pages: Vec::new(),
            behind: 0,
            keys: Vec::new(),
            kept: 0,
            last_logits: new.last_logits,
            cached: None,
        };
        self.sequences.insert(id, sequence);
        self.waiting.insert(id);
    }

    /// Removes a sequence; its pages come back.
    pub fn remove(&mut self, id: SequenceId) {
        self.release_pages(id);
        self.sequences.remove(&id);
        self.waiting.remove(&id);
        self.running.remove(&id);
    }

    /// Appends a token that was generated behind all others. If it is that of the draft, it is computed already.
    pub fn push(&mut self, id: SequenceId, token: u32) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let as_drafted = sequence.draft.first() == Some(&token);
        sequence.ids.push(token);
        if as_drafted {
            sequence.draft.remove(0);
            sequence.computed += 1;
        } else {
            sequence.draft.clear();
        }
    }

    /// Guesses the tokens behind a sequence that are computed in the next step, as far as there are rows and pages for them.
    pub fn set_draft(&mut self, id: SequenceId, draft: Vec<u32>) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.draft = draft;
        }
    }

    /// Makes the text of a sequence another one; what both begin with stays computed. False if there is no such sequence. For
    /// schedulers without prefix cache, which may write to pages again.
    pub fn set_text(&mut self, id: SequenceId, text: &[u32]) -> bool {
        let Some(sequence) = self.sequences.get_mut(&id) else { return false };
        let equal = sequence.ids.iter().zip(text).take_while(|(a, b)| a == b).count();
        sequence.ids.truncate(equal);
        sequence.ids.extend_from_slice(&text[equal..]);
        // One token at least is computed, since logits come from a step.
        sequence.computed = sequence.computed.min(equal).min(text.len() - 1);
        if self.limits.first_block(sequence.computed) < sequence.behind {
            // What its next row reads was given back.
            self.release_pages(id);
        }
        true
    }

    /// The rows of the next step, none if there is nothing to do; of this sequence alone, if one is named.
    ///
    /// Sequences with one token to compute come first, then prompts, as far as there are rows.
    pub fn plan(&mut self, only: Option<SequenceId>) -> PlannedStep {
        let preempted = self.counts.preemptions;
        self.send_back(only);
        let mut step = PlannedStep::default();
        let mut rows = self.limits.rows;
        for id in self.running.clone() {
            // A sequence before this one may have taken its pages.
            self.reserve_pages(id);
        }
        for id in self.running.clone() {
            if self.pending(id) == 1 {
                // One row is left for each of the others.
                let others = self.running.len() - step.ids.len();
                let drafted = self.fit_draft(id, rows.saturating_sub(others));
                self.add_rows(&mut step, id, 1, drafted);
                rows -= 1 + drafted;
            }
        }
        // Whoever gave pages up would take them back at once.
        if self.counts.preemptions == preempted || only.is_some() {
            self.admit_waiting(only);
        }
        let mut rows = rows.min(self.options.prompt_rows);
        for id in self.running.clone() {
            let pending = self.pending(id);
            // What has one token to compute and is not in the step yet was just admitted.
            let chunk = pending.min(rows).min(if self.wants_prompt(id) { LOGIT_ROWS } else { usize::MAX });
            if chunk > 0 && !step.ids.contains(&id) {
                let chunk = self.cut_chunk(id, chunk);
                self.add_rows(&mut step, id, chunk, 0);
                rows -= chunk;
            }
        }
        step
    }

    /// A step was computed.
    pub fn complete(&mut self, step: &PlannedStep) {
        let page = self.limits.page;
        for (id, rows) in step.ids.iter().zip(&step.batch.sequences) {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let end = rows.start + rows.ids.len();
            // Whether tokens of a draft are right is not known yet.
            sequence.computed = end.min(sequence.ids.len());
            sequence.draft.truncate(end - sequence.computed);
            if rows.wanted == WantedLogits::All {
                sequence.logits_from = sequence.computed;
            }
            if sequence.computed >= sequence.prompt {
                sequence.logits_from = usize::MAX;
            }
            if self.options.prefix_cache {
                sequence.extend_keys(page);
                for at in sequence.kept..sequence.computed / page {
                    self.pool.keep(sequence.pages[at], sequence.keys[at]);
                }
                sequence.kept = sequence.computed / page;
            }
            if let Some(next) = sequence.state.next.take() {
                let before = sequence.state.now.replace(next);
                before.filter(|&slot| slot != next).into_iter().for_each(|slot| self.slots.release(slot));
                if self.options.prefix_cache {
                    sequence.keep_state(&mut self.slots, page);
                }
            }
            sequence.release_behind(&mut self.pool, self.limits);
        }
    }

    /// The content of all pages is lost: all sequences wait to be computed anew.
    pub fn lose_pages(&mut self) {
        self.pool.forget();
        self.slots.forget();
        self.running.clone().into_iter().for_each(|id| self.wait_again(id));
    }

    /// The tokens of a sequence.
    pub fn ids(&self, id: SequenceId) -> &[u32] {
        self.sequences.get(&id).map_or(&[], |sequence| &sequence.ids)
    }

    /// Tokens of the prompt that were in the cache when the sequence first ran.
    pub fn cached_tokens(&self, id: SequenceId) -> usize {
        self.sequences.get(&id).and_then(|sequence| sequence.cached).unwrap_or(0)
    }

    /// Whether all tokens of a sequence are computed.
    #[cfg(test)]
    pub fn is_computed(&self, id: SequenceId) -> bool {
        self.sequences.get(&id).is_some_and(|sequence| sequence.pending() == 0)
    }

    /// Sequences that run.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Sequences that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Pages that hold something of a sequence.
    pub fn pages_used(&self) -> usize {
        self.pool.used_pages()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Tokens to compute of a sequence that runs.
    fn pending(&self, id: SequenceId) -> usize {
        if self.running.contains(&id) { self.sequences[&id].pending() } else { 0 }
    }

    fn wants_prompt(&self, id: SequenceId) -> bool {
        self.sequences[&id].logits_from < usize::MAX
    }

    fn add_rows(&mut self, step: &mut PlannedStep, id: SequenceId, count: usize, drafted: usize) {
        // Each that runs has two slots, so that there always is one.
        if !self.take_slot(id) {
            return;
        }
        step.ids.push(id);
        step.batch.sequences.push(self.sequences[&id].rows(count, drafted, self.limits.page));
    }

    /// Cuts the draft of a sequence to `rows`, to the context, and to the pages that can be had without preemption.
    fn fit_draft(&mut self, id: SequenceId, rows: usize) -> usize {
        let BatchLimits { page, context, .. } = self.limits;
        let Some(sequence) = self.sequences.get_mut(&id) else { return 0 };
        if self.limits.states > 0 {
            // A state cannot go back to the tokens before a wrong one.
            sequence.draft.clear();
            return 0;
        }
        let length = sequence.ids.len();
        let most = sequence.draft.len().min(rows).min(context.saturating_sub(length));
        while sequence.pages.len() < (length + most).div_ceil(page) {
            let Some(page) = self.pool.allocate() else { break };
            sequence.pages.push(page);
        }
        sequence.draft.truncate(most.min(sequence.pages.len() * page - length));
        sequence.draft.len()
    }

    /// Lets waiting sequences run, the oldest first, as far as there are pages for all their tokens.
    fn admit_waiting(&mut self, only: Option<SequenceId>) {
        let BatchLimits { sequences, rows, states, .. } = self.limits;
        // The state before a step and that after it may need a slot each.
        let most = sequences.min(rows).min(if states > 0 { states / 2 } else { usize::MAX });
        while self.running.len() < most {
            let next = only.filter(|id| self.waiting.contains(id));
            let next = if only.is_some() { next } else { self.waiting.first().copied() };
            let Some(id) = next else { return };
            if !self.admit(id) {
                return;
            }
            self.waiting.remove(&id);
            self.running.insert(id);
        }
    }

    /// Lets all others wait while a sequence runs alone; afterwards, the younger ones while an older one waits.
    fn send_back(&mut self, only: Option<SequenceId>) {
        let oldest = self.waiting.first().copied();
        let others = self.running.iter().copied().filter(|id| match only {
            Some(only) => *id != only,
            None => oldest.is_some_and(|oldest| oldest < *id),
        });
        others.collect::<Vec<SequenceId>>().into_iter().for_each(|id| self.wait_again(id));
    }

    fn preempt(&mut self, id: SequenceId) {
        self.counts.preemptions += 1;
        self.wait_again(id);
    }

    fn wait_again(&mut self, id: SequenceId) {
        self.release_pages(id);
        self.running.remove(&id);
        self.waiting.insert(id);
    }
}
