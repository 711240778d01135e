//! Runs the workgroups of one dispatch on threads.
//!
//! Threads take blocks of workgroups from one counter. The order in which workgroups run is not fixed; a kernel whose result
//! depends on it races.

use crate::code::Code;
use crate::vm::{Env, Vm, VmStop, Watch};
use rayon::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of the grid that each thread takes at a time, so that uneven workgroups balance.
/// Larger parts leave threads idle at the end, smaller ones touch the counter more often.
const PARTS_PER_THREAD: u64 = 8;

/// Runs all workgroups, on how many threads it says; each has a watch of its own, made by `watch` and handed to `done`.
///
/// `pool` is `None` for rayon's global threads. At most `most` threads are used, at least one, which is the calling thread. Of
/// several failures a deadline is reported rather than [`VmStop::Elsewhere`], which only says that another thread failed.
pub fn run<W: Watch>(
    code: &Code,
    env: &Env<'_>,
    (pool, most): (Option<&rayon::ThreadPool>, u64),
    watch: impl Fn() -> W + Sync,
    done: impl Fn(W) + Sync,
) -> (Result<(), VmStop>, u64) {
    let [x, y, z] = env.groups.map(u64::from);
    // Each factor is within the limit of a dispatch, so the product fits 64 bits.
    let total = x * y * z;
    let threads = pool.map_or_else(rayon::current_num_threads, rayon::ThreadPool::current_num_threads) as u64;
    let threads = threads.min(total).min(most).max(1);
    let block = (total / (threads * PARTS_PER_THREAD)).max(1);
    let next = AtomicU64::new(0);
    let work = || -> Result<(), VmStop> {
        let mut vm = Vm::new(code);
        let mut watch = watch();
        let result = loop {
            let first = next.fetch_add(block, Ordering::Relaxed);
            if first >= total {
                break Ok(());
            }
            let mut groups = first..(first + block).min(total);
            // x runs fastest, so that neighbouring groups, which tend to read the same memory, run on one thread.
            let at = |i: u64| [(i % x) as u32, (i / x % y) as u32, (i / x / y) as u32];
            if let Err(stop) = groups.try_for_each(|i| vm.run(env, at(i), &mut watch)) {
                break Err(stop);
            }
        };
        // Also after a failure: what was found until then is reported.
        done(watch);
        result
    };
    // No other thread is woken, and the watch runs where the caller is.
    if threads == 1 {
        return (work(), 1);
    }
    let failed = Mutex::new(None);
    let all = || {
        (0..threads).into_par_iter().for_each(|_| {
            if let Err(stop) = work()
                && let Ok(mut failed) = failed.lock()
                // A deadline that is known stays: it names the place.
                && !matches!(*failed, Some(VmStop::Deadline { .. }))
            {
                *failed = Some(stop);
            }
        });
    };
    match pool {
        Some(pool) => pool.install(all),
        None => all(),
    }
    (failed.into_inner().ok().flatten().map_or(Ok(()), Err), threads)
}
