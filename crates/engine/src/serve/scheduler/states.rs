//! The states of recurrences: in which slot each sequence's lies, and where one is kept for others.
//!
//! A state stands behind all tokens that were computed, so that nothing but the end of a step can be kept of it. Chunks of
//! prompts end where a page is full. What is kept stays where it lies, and the sequence goes on in another slot.

use super::super::pages::PagePool;
use super::{Scheduler, Sequence, SequenceId};

impl Sequence {
    /// Keeps the state for others where it stands behind a full page. Of the states behind the prompt only the last one is
    /// kept: they are large, and who goes on with an answer goes on with all of it.
    pub(super) fn keep_state(&mut self, slots: &mut PagePool, page: usize) {
        let (Some(slot), true) = (self.state.now, self.computed.is_multiple_of(page)) else { return };
        let Some(key) = (self.computed / page).checked_sub(1).and_then(|last| self.keys.get(last)) else {
            return;
        };
        slots.keep(slot, *key);
        if self.computed > self.prompt
            && let Some(before) = self.state.kept.replace(*key)
        {
            slots.drop_content(&before);
        }
    }
}

impl Scheduler {
    /// Of a prompt's rows so many that its state can be kept for others: up to the end of a full page. Of the last rows of a
    /// text those are taken alone that are behind its last full page.
    pub(super) fn cut_chunk(&self, id: SequenceId, count: usize) -> usize {
        let (page, sequence) = (self.limits.page, &self.sequences[&id]);
        if self.limits.states == 0 || !self.options.prefix_cache {
            return count;
        }
        let end = sequence.computed + count;
        let border = if end == sequence.ids.len() { (end - 1) / page * page } else { end / page * page };
        if border > sequence.computed { border - sequence.computed } else { count }
    }

    /// Takes a slot for the state after the planned rows: that of the state before, unless others may read it. False if
    /// there is none.
    pub(super) fn take_slot(&mut self, id: SequenceId) -> bool {
        let Some(sequence) = self.sequences.get_mut(&id).filter(|_| self.limits.states > 0) else {
            return true;
        };
        let own = sequence.state.now.filter(|&slot| self.slots.is_private(slot));
        sequence.state.next = own.or_else(|| self.slots.allocate());
        sequence.state.next.is_some()
    }
}
