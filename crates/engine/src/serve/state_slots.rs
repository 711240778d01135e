//! The slots of one sequence's states.

use super::pages::{PageKey, PagePool};

/// Where the state of a sequence lies, of a model with recurrences.
#[derive(Debug, Default)]
pub struct StateSlots {
    /// Of the state behind the computed tokens.
    pub now: Option<u32>,
    /// Of the state behind the rows that are planned.
    pub next: Option<u32>,
    /// The content of the last state that was kept behind the prompt: the next one takes its place.
    pub kept: Option<PageKey>,
}

impl StateSlots {
    /// Gives the slots back.
    pub fn release(self, slots: &mut PagePool) {
        let next = self.next.filter(|next| self.now != Some(*next));
        next.into_iter().chain(self.now).for_each(|slot| slots.release(slot));
    }
}
