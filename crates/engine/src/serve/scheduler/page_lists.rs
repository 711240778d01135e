//! The pages of sequences: which ones they need, which they find in the cache, and which they give back.
//!
//! Where every layer of a model sees a window, a sequence gives back the pages in front of it while it goes on, and takes those
//! of the next rows alone. What others may want of them stays known until their place is needed.

use super::super::batch::BatchLimits;
use super::super::pages::{PageKey, PagePool};
use super::{SPARE, Scheduler, Sequence, SequenceId};

impl Sequence {
    /// The pages up to the end of the next step's rows, those that were given back among them; up to the end of the text of a
    /// model that sees all of it.
    fn next_blocks(&self, limits: BatchLimits) -> usize {
        let end = limits.window.map_or(usize::MAX, |_| self.computed.saturating_add(limits.rows));
        self.ids.len().min(end).div_ceil(limits.page)
    }

    /// As many pages as it holds at most until the text is computed, counted from the first one on if `hits` need not be.
    fn most_blocks(&self, limits: BatchLimits, hits: usize) -> usize {
        let all = self.ids.len().div_ceil(limits.page);
        // Those of a window and of a step's rows, which begin and end within pages, and the one that stays behind them.
        let within = |window: usize| hits + window.saturating_add(limits.rows).div_ceil(limits.page) + 2;
        all.min(limits.window.map_or(usize::MAX, within))
    }

    /// Gives back the pages that no row behind the computed ones reads. One more stays: a text that is set anew may go back
    /// by some tokens.
    pub(super) fn release_behind(&mut self, pool: &mut PagePool, limits: BatchLimits) {
        let first = limits.first_block(self.computed).saturating_sub(1);
        while self.behind < first {
            pool.release(std::mem::take(&mut self.pages[self.behind]));
            self.behind += 1;
        }
    }
}

impl Scheduler {
    /// Gives a waiting sequence its pages, those of the prefix cache first. False if it must wait.
    pub(super) fn admit(&mut self, id: SequenceId) -> bool {
        let BatchLimits { page, pages: all, .. } = self.limits;
        let Some(sequence) = self.sequences.get_mut(&id) else { return false };
        // At least one token is computed, since logits come from a step.
        let sharable = ((sequence.ids.len() - 1) / page).min(sequence.logits_from / page);
        let cache = self.options.prefix_cache;
        if cache {
            sequence.extend_keys(page);
        }
        let sequence = &self.sequences[&id];
        let keys = sequence.keys.get(..sharable).filter(|_| cache).unwrap_or_default();
        let hits = self.cached_blocks(keys);
        let first = self.limits.first_block(hits * page).min(hits);
        // Pages in front of the window are not read: any number stands for them.
        let mut pages = vec![0; first];
        pages.extend(keys[first.min(keys.len())..hits].iter().map_while(|key| self.pool.share(key)));
        let spare = if self.running.is_empty() { 0 } else { self.running.len().min(all / SPARE) };
        let soon = hits < sharable && self.is_computed_soon(hits, sequence.keys.get(hits));
        let missing = sequence.most_blocks(self.limits, hits) - hits;
        if soon || self.pool.available() < missing + spare {
            pages.drain(first..).rev().for_each(|page| self.pool.release(page));
            return false;
        }
        let Some(sequence) = self.sequences.get_mut(&id) else { return false };
        (sequence.pages, sequence.behind) = (pages, first);
        (sequence.kept, sequence.computed) = (hits, hits * page);
        let missing = sequence.next_blocks(self.limits) - hits;
        sequence.pages.extend((0..missing).map_while(|_| self.pool.allocate()));
        let key = hits.checked_sub(1).map(|last| sequence.keys[last]);
        sequence.state.now = key.and_then(|key| self.slots.share(&key));
        if sequence.cached.is_none() {
            sequence.cached = Some(hits * page);
            self.counts.prefix_queries += sequence.prompt as u64;
            self.counts.prefix_hits += (hits * page) as u64;
        }
        true
    }

    /// How many of the pages of these keys need not be computed: all that rows behind them read are in the cache.
    fn cached_blocks(&self, keys: &[PageKey]) -> usize {
        let (mut hits, mut known) = (0, 0);
        for (end, key) in (1..).zip(keys) {
            known = if self.pool.knows(key) { known + 1 } else { 0 };
            if known == 0 && self.limits.window.is_none() {
                break;
            }
            let read = end - self.limits.first_block(end * self.limits.page).min(end);
            // A text goes on where a state was kept.
            if known >= read && (self.limits.states == 0 || self.slots.knows(key)) {
                hits = end;
            }
        }
        hits
    }

    /// Whether a running sequence is about to compute this page: who waits for it need not compute it, too.
    fn is_computed_soon(&self, at: usize, key: Option<&PageKey>) -> bool {
        let computes = |s: &Sequence| s.kept <= at && s.keys.get(at) == key;
        key.is_some() && self.running.iter().any(|id| computes(&self.sequences[id]))
    }

    /// Gives a running sequence the pages of its tokens, those of younger ones if none is left. The youngest gives up its own.
    pub(super) fn reserve_pages(&mut self, id: SequenceId) {
        while let Some(sequence) = self.sequences.get_mut(&id).filter(|_| self.running.contains(&id)) {
            if sequence.pages.len() >= sequence.next_blocks(self.limits) {
                return;
            }
            match (self.pool.allocate(), self.running.last().copied()) {
                (Some(page), _) => sequence.pages.push(page),
                (None, Some(youngest)) => self.preempt(youngest),
                (None, None) => return,
            }
        }
    }

    /// The last page first: it is of the least use to others.
    pub(super) fn release_pages(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        (sequence.computed, sequence.kept) = (0, 0);
        let behind = std::mem::take(&mut sequence.behind);
        sequence.draft.clear();
        std::mem::take(&mut sequence.state).release(&mut self.slots);
        let pages = std::mem::take(&mut sequence.pages);
        pages.into_iter().skip(behind).rev().for_each(|page| self.pool.release(page));
    }
}
