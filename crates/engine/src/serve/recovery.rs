//! Which requests are run again after a step failed, and which one is to blame: a state machine without a model.
//!
//! After a failure all requests of the step are tried together once more. If that fails, too, each is run alone; who fails
//! alone is to blame. Who goes beyond the rows that failed is free of suspicion.

use super::scheduler::{PlannedStep, SequenceId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Requests under suspicion, and how many of their tokens must be computed to clear them.
    suspects: BTreeMap<SequenceId, usize>,
    /// Whether they are run one by one.
    alone: bool,
}

impl Recovery {
    /// The request that must be run alone now.
    pub fn suspect(&self) -> Option<SequenceId> {
        self.suspects.keys().next().copied().filter(|_| self.alone)
    }

    /// A step failed; gives the request that is to blame.
    pub fn note_failure(&mut self, step: &PlannedStep) -> Option<SequenceId> {
        if let [id] = step.ids[..] {
            if self.suspects.contains_key(&id) {
                self.remove(id);
                return Some(id);
            }
        } else {
            self.alone = !self.suspects.is_empty();
        }
        for (id, rows) in step.ids.iter().zip(&step.batch.sequences) {
            let goal = self.suspects.entry(*id).or_default();
            *goal = (*goal).max(rows.start + rows.ids.len());
        }
        None
    }

    /// A step succeeded.
    pub fn note_success(&mut self, step: &PlannedStep) {
        for (id, rows) in step.ids.iter().zip(&step.batch.sequences) {
            if self.suspects.get(id).is_some_and(|goal| rows.start + rows.ids.len() >= *goal) {
                self.remove(*id);
            }
        }
    }

    /// A request has ended.
    pub fn remove(&mut self, id: SequenceId) {
        self.suspects.remove(&id);
        self.alone &= !self.suspects.is_empty();
    }
}
