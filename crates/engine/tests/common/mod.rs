//! What tests of hostile files share: the memory that work holds.

use peak_alloc::PeakAlloc;
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;
/// Bytes that work on a short text may hold at any time.
const MOST: usize = 256 << 20;
/// The allocator counts for all threads: tests that look at it take turns.
static TURN: Mutex<()> = Mutex::new(());

pub fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the work gives, which must not hold too much, and the bytes that it has left behind, its result among them.
pub fn measure_work<T>(what: &str, work: impl FnOnce() -> T) -> (T, usize) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let done = work();
    let taken = MEMORY.peak_usage().saturating_sub(before);
    assert!(taken < MOST, "{what}: {} MiB", taken >> 20);
    (done, MEMORY.current_usage().saturating_sub(before))
}
