//! What sampler and checker share: how much waits, and what was found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What has been found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowCounts {
    /// Calls with a verdict.
    pub calls: u64,
    /// Calls that were chosen and found no room to wait.
    pub dropped: u64,
    /// Calls that the source does not run, or whose exact result nobody says.
    pub skipped: u64,
    /// Failing calls that left no suite, for want of room or because their kernel has left enough.
    pub unwritten: u64,
    /// Calls that wait for their verdict.
    pub waiting: u64,
    /// Failing calls, by operator and kernel.
    pub failures: Vec<ShadowFailures>,
}

/// Failing calls of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowFailures {
    /// The operator.
    pub op: String,
    /// The row of the kernel list, or the user's kernel.
    pub kernel: String,
    /// Calls.
    pub calls: u64,
}

/// See the module.
pub(super) struct ShadowState {
    most_calls: u64,
    most_bytes: u64,
    waiting_calls: AtomicU64,
    waiting_bytes: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) unwritten: AtomicU64,
    failures: Mutex<BTreeMap<(String, String), u64>>,
}

impl ShadowState {
    /// Nothing waits, and this much may.
    pub fn new(most_calls: usize, most_bytes: u64) -> ShadowState {
        ShadowState {
            most_calls: most_calls as u64,
            most_bytes,
            waiting_calls: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            failures: Mutex::default(),
        }
    }

    /// Takes room for a call of so many bytes; false if there is none. Only one thread takes room.
    pub fn reserve(&self, bytes: u64) -> bool {
        let calls = self.waiting_calls.load(Ordering::Acquire);
        let waiting = self.waiting_bytes.load(Ordering::Acquire);
        if calls >= self.most_calls || waiting.saturating_add(bytes) > self.most_bytes {
            return false;
        }
        self.waiting_calls.fetch_add(1, Ordering::AcqRel);
        self.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        true
    }

    /// Gives the room of a call back.
    pub fn release(&self, bytes: u64) {
        self.waiting_calls.fetch_sub(1, Ordering::AcqRel);
        self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Counts a failing call.
    pub fn add_failure(&self, op: &str, kernel: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry((op.to_string(), kernel.to_string())).or_default() += 1;
    }

    /// What has been found so far.
    pub fn counts(&self) -> ShadowCounts {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = failures.iter().map(|((op, kernel), calls)| ShadowFailures {
            op: op.clone(),
            kernel: kernel.clone(),
            calls: *calls,
        });
        let value = |count: &AtomicU64| count.load(Ordering::Acquire);
        ShadowCounts {
            failures: failures.collect(),
            calls: value(&self.calls),
            dropped: value(&self.dropped),
            skipped: value(&self.skipped),
            unwritten: value(&self.unwritten),
            waiting: value(&self.waiting_calls),
        }
    }
}

/// Adds one.
pub(super) fn increment(count: &AtomicU64) {
    count.fetch_add(1, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_in_calls_and_bytes() {
        let state = ShadowState::new(2, 100);
        assert!(!state.reserve(101));
        assert!(state.reserve(60) && !state.reserve(41) && state.reserve(40));
        assert!(!state.reserve(0), "two calls wait");
        state.release(60);
        assert!(state.reserve(60));
        assert_eq!(state.counts().waiting, 2);
    }
}
