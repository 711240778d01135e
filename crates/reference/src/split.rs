//! When the work of an operator is split between threads.

/// Multiplications from which it is worth to wake threads: a tenth of a millisecond of one thread.
pub(crate) const WAKING: usize = 1 << 20;

/// Whether work of so many multiplications is split between threads: from `least` on by a thread of the pool, whose others look
/// for work, and by any other thread only where it is worth to wake them. Results do not depend on it.
pub(crate) fn is_split(work: usize, least: usize) -> bool {
    let least = if rayon::current_thread_index().is_some() { least } else { least.max(WAKING) };
    work >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_woken_for_more_work_than_those_that_are_awake() {
        let splits = || [9, 10, WAKING - 1, WAKING].map(|work| is_split(work, 10));
        assert_eq!(splits(), [false, false, false, true]);
        assert_eq!(rayon::scope(|_| splits()), [false, true, true, true]);
    }
}
