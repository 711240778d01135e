//! Runs the workgroups of one dispatch on threads.

use crate::code::Code;
use crate::vm::{Env, Unwatched, Vm, VmStop, Watch};
use rayon::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of the grid that each thread takes at a time, so that uneven workgroups balance.
const PARTS_PER_THREAD: u64 = 8;

/// Runs all workgroups on the calling thread.
pub fn run_inline(code: &Code, env: &Env<'_>) -> Result<(), VmStop> {
    let mut vm = Vm::new(code);
    let [x, y, z] = env.groups;
    for z in 0..z {
        for y in 0..y {
            for x in 0..x {
                vm.run(env, [x, y, z], &mut Unwatched)?;
            }
        }
    }
    Ok(())
}

/// Runs all workgroups, on how many threads it says; each has a watch of its own, made by `watch` and handed to `done`.
pub fn run<W: Watch>(
    code: &Code,
    env: &Env<'_>,
    pool: Option<&rayon::ThreadPool>,
    watch: impl Fn() -> W + Sync,
    done: impl Fn(W) + Sync,
) -> (Result<(), VmStop>, u64) {
    let [x, y, z] = env.groups.map(u64::from);
    let total = x * y * z;
    let threads = pool.map_or_else(rayon::current_num_threads, rayon::ThreadPool::current_num_threads) as u64;
    let threads = threads.min(total).max(1);
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
            let at = |i: u64| [(i % x) as u32, (i / x % y) as u32, (i / x / y) as u32];
            if let Err(stop) = groups.try_for_each(|i| vm.run(env, at(i), &mut watch)) {
                break Err(stop);
            }
        };
        done(watch);
        result
    };
    if threads == 1 {
        return (work(), 1);
    }
    let failed = Mutex::new(None);
    let all = || {
        (0..threads).into_par_iter().for_each(|_| {
            if let Err(stop) = work()
                && let Ok(mut failed) = failed.lock()
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
