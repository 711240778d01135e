//! Kernels that are compiled before they are created, several at a time.

use crate::KernelDesc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of stack of a thread that compiles: that of a process's first thread, which compilers are made for.
const COMPILER_STACK: usize = 8 << 20;

/// Calls `compile` with each kernel, one on each of the host's processors at a time. The order is not determined, and kernels are left out
/// where the host gives no thread: they are compiled when they are created.
pub fn compile_side_by_side(descs: &[KernelDesc], compile: impl Fn(&KernelDesc) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(desc) = descs.get(next.fetch_add(1, Ordering::Relaxed)) {
            compile(desc);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(descs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let builder = std::thread::Builder::new().stack_size(COMPILER_STACK);
            // With fewer threads it takes longer; with none, nothing is compiled here.
            drop(builder.spawn_scoped(scope, work));
        }
    });
}
