//! A count of places for work that waits, so that whoever makes it cannot run far ahead of those who do it.
//!
//! Waiting in a thread pool is dangerous: a thread that sleeps for a place may be the one that would free
//! it.

use std::sync::{Condvar, Mutex, PoisonError};

/// So many places.
pub struct Slots {
    /// Places that nobody has.
    free: Mutex<usize>,
    /// Told when a place is given back.
    freed: Condvar,
}

/// A place; given back when dropped.
pub struct Slot<'a>(&'a Slots);

impl Slots {
    /// All places free.
    pub fn new(count: usize) -> Slots {
        Slots { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for a free place and takes it. A thread of the pool does other work of the pool meanwhile: all of its
    /// threads could be waiting here.
    pub fn take(&self) -> Slot<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            if rayon::current_thread_index().is_some() {
                // The lock must not be held: the work that follows may give a place back.
                drop(free);
                rayon::yield_now();
                free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            } else {
                free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
            }
        }
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn flood() -> usize {
        let slots = Slots::new(3);
        let (waiting, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (waiting_of, most_of) = (&waiting, &most);
        rayon::in_place_scope(|scope| {
            for _ in 0..200 {
                let slot = slots.take();
                most_of.fetch_max(waiting_of.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                scope.spawn(move |_| {
                    waiting_of.fetch_sub(1, Ordering::SeqCst);
                    drop(slot);
                });
            }
        });
        most.into_inner()
    }

    #[test]
    fn no_more_than_that_many_wait_on_any_thread() {
        assert!(flood() <= 3);
        let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert!(single.install(flood) <= 3, "a pool's only thread does the work itself");
    }
}
