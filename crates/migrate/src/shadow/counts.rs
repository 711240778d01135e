//! What sampler and checker count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What has been found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowCounts {
    /// Calls with a verdict.
    pub calls: u64,
    /// Calls that were chosen and found no room to wait, or as many of their kernel as may wait.
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
#[derive(Default)]
pub(super) struct ShadowState {
    pub(super) calls: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) unwritten: AtomicU64,
    failures: Mutex<BTreeMap<(String, String), u64>>,
}

impl ShadowState {
    /// Counts a failing call.
    pub fn add_failure(&self, op: &str, kernel: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry((op.to_string(), kernel.to_string())).or_default() += 1;
    }

    /// What has been found so far, while so many calls wait.
    pub fn counts(&self, waiting: u64) -> ShadowCounts {
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
            waiting,
        }
    }
}

/// Adds one.
pub(super) fn increment(count: &AtomicU64) {
    count.fetch_add(1, Ordering::AcqRel);
}
