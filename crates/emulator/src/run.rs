//! Executes prepared commands: hands a dispatch's buffers to the threads that run it, and takes them back.
//!
//! While a dispatch runs its buffers are taken out of the device, so that threads may share them without a lock. They come back
//! whatever the result is, also after a crash of the VM.

use crate::check::collect::{self, Collector};
use crate::check::shadow::{Accesses, WrittenHalves};
use crate::check::{BindingShadow, Watcher};
use crate::commands::{CheckedCommand, Range};
use crate::device::Emulator;
use crate::dispatch;
use crate::front::ReadyKernel;
use crate::vm::{BufferView, Env, Unwatched, VmStop};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tapml_device::{BufferId, Error, ErrorKind, Finding, KernelId, Result};

/// A thread is woken for so much work at least: waking it and waiting for it takes processor time too.
/// The work is estimated from the kernel's last run.
const NANOS_PER_THREAD: u64 = 100_000;

impl Emulator {
    /// Runs one prepared command to its end.
    ///
    /// # Errors
    ///
    /// A kernel that does not end. Everything else was refused when the command was prepared.
    pub(crate) fn execute(&mut self, step: CheckedCommand) -> Result<()> {
        match step {
            CheckedCommand::Dispatch { label, kernel, ranges, groups } => {
                self.dispatch(&label, kernel, &ranges, groups)
            }
            CheckedCommand::Copy { src, from, dst, to } => {
                // Both exist and differ: preparing has checked it.
                if let [Some(source), Some(target)] = self.buffers.get_disjoint_mut([&src, &dst]) {
                    target.words[to..to + from.len()].copy_from_slice(&source.words[from.clone()]);
                    // Copying unwritten memory is no defect; the destination counts as unwritten from then on.
                    if let (Some(target), Some(source)) = (&mut target.written, &source.written) {
                        target.copy_words(to, source, from.start, from.len());
                    }
                }
                Ok(())
            }
            CheckedCommand::Fill { buffer, word } => {
                if let Some(stored) = self.buffers.get_mut(&buffer) {
                    stored.words.fill(word);
                    if let Some(written) = &mut stored.written {
                        // Zero is a value; any other word marks memory that nobody should read.
                        written.set_all(word == 0);
                    }
                }
                Ok(())
            }
        }
    }

    /// Runs all workgroups of a dispatch. No workgroups are no work and no error, as in WebGPU.
    /// Kernels that were stopped leave their buffers as they were at that moment.
    fn dispatch(&mut self, label: &str, kernel: KernelId, ranges: &[Range], groups: [u32; 3]) -> Result<()> {
        if groups.contains(&0) {
            return Ok(());
        }
        let mut taken: Vec<(BufferId, Vec<u32>)> = Vec::new();
        for range in ranges {
            // A buffer may be bound several times; it is taken out once.
            if taken.iter().all(|(id, _)| *id != range.buffer)
                && let Some(stored) = self.buffers.get_mut(&range.buffer)
            {
                stored.written.as_mut().map(WrittenHalves::is_full);
                taken.push((range.buffer, std::mem::take(&mut stored.words)));
            }
        }
        let result = self.run(label, kernel, ranges, &mut taken, groups);
        // Before `result` is looked at: an error must not lose the buffers.
        for (id, words) in taken {
            if let Some(stored) = self.buffers.get_mut(&id) {
                stored.words = words;
            }
        }
        let (findings, result) = result?;
        for finding in findings {
            collect::add(&mut self.findings, finding);
        }
        // Later kernels of the same text get a shorter limit.
        if result.is_err() {
            let text = self.kernel(label, kernel)?.desc.source.text.clone();
            self.stopped.insert(text);
        }
        result
    }

    /// How long a workgroup of this kernel may run: with other constants one that was stopped before is likely to be stopped
    /// again, and is waited for less.
    /// A tenth is enough to see again that a loop has no end.
    fn limit(&self, kernel: &ReadyKernel) -> Duration {
        if self.stopped.contains(&kernel.desc.source.text) { self.time_limit / 10 } else { self.time_limit }
    }

    /// What was found, also if the kernel was stopped, and whether it was.
    /// The inner result is that of the kernel; the outer one is of what should not happen.
    fn run(
        &self,
        label: &str,
        kernel: KernelId,
        ranges: &[Range],
        taken: &mut [(BufferId, Vec<u32>)],
        groups: [u32; 3],
    ) -> Result<(Vec<Finding>, Result<()>)> {
        let kernel = self.kernel(label, kernel)?;
        // Running it again would cost the whole limit again.
        if let Some(&pc) = kernel.stopped.get() {
            return Err(self.not_ended(
                label,
                kernel,
                pc,
                "a workgroup was still running in an earlier dispatch, which was stopped here; it is not run again",
            ));
        }
        let limit = self.limit(kernel);
        let views: Vec<_> = taken
            .iter_mut()
            .map(|(id, words)| {
                // One view per buffer: a buffer that any binding writes is atomic for all of its bindings.
                let writes = ranges.iter().any(|r| r.buffer == *id && r.writes);
                (*id, if writes { BufferView::Write(as_atomic(words)) } else { BufferView::Read(words) })
            })
            .collect();
        let bind = |range: &Range| {
            let (_, view) = views.iter().find(|(id, _)| *id == range.buffer)?;
            Some(match *view {
                BufferView::Read(words) => BufferView::Read(words.get(range.first..range.first + range.len)?),
                BufferView::Write(words) => {
                    BufferView::Write(words.get(range.first..range.first + range.len)?)
                }
            })
        };
        let buffers = ranges.iter().map(bind).collect::<Option<Vec<_>>>();
        let buffers =
            buffers.ok_or_else(|| Error::bug(format!("dispatch `{label}`: a checked range does not fit")))?;
        // WGSL: the number of whole elements that fit the bound range.
        let lengths = kernel.code.lengths.iter().map(|l| {
            let bytes = ranges[l.binding as usize].len as u64 * 4;
            (bytes.saturating_sub(u64::from(l.offset)) / u64::from(l.stride.max(1))) as u32
        });
        let stop = AtomicBool::new(false);
        let env = Env { buffers, lengths: lengths.collect(), groups, limit, stop: &stop };
        // A defect of the emulator must end neither the process nor the owner of the buffers. Words are plain numbers, so
        // a dispatch that was cut off leaves nothing inconsistent.
        let work = AssertUnwindSafe(|| self.execute_groups(kernel, label, &env, ranges));
        let (result, findings) = std::panic::catch_unwind(work).map_err(|_| {
            Error::bug(format!("dispatch `{label}`: the emulator crashed in kernel `{}`", kernel.desc.name))
        })?;
        let ended = result.map_err(|stop| {
            let pc = match stop {
                VmStop::Deadline { pc } => pc,
                VmStop::Elsewhere => 0,
            };
            // The first thread to fail set the place; a thread that was stopped by another knows none.
            let pc = *kernel.stopped.get_or_init(|| pc);
            let message = format!("a workgroup is still running after {limit:?}, stopped here");
            self.not_ended(label, kernel, pc, &message)
        });
        Ok((findings, ended))
    }

    /// Runs the workgroups, watched if there are checks; the findings come with the result.
    /// Without checks the time is measured, and the next dispatch takes as many threads as its work is worth.
    fn execute_groups(
        &self,
        kernel: &ReadyKernel,
        label: &str,
        env: &Env<'_>,
        ranges: &[Range],
    ) -> (std::result::Result<(), VmStop>, Vec<Finding>) {
        let (checks, pool) = (self.options.check, self.pool.as_ref());
        if !checks.is_any() {
            let groups = env.groups.iter().map(|&g| u64::from(g)).product::<u64>();
            let nanos = kernel.group_nanos.load(Ordering::Relaxed);
            // Nothing measured: all threads.
            let worth = if nanos == 0 { u64::MAX } else { groups.saturating_mul(nanos) / NANOS_PER_THREAD };
            let start = Instant::now();
            let code = &kernel.code;
            let (result, threads) = dispatch::run(code, env, (pool, worth), || Unwatched, |_| {});
            // Wall time times threads is the time of all groups together. At least 1: 0 means that nothing was measured.
            let spent = start.elapsed().as_nanos() as u64 * threads / groups.max(1);
            kernel.group_nanos.store(spent.max(1), Ordering::Relaxed);
            return (result, Vec::new());
        }
        // Races need a writer: buffers that are only read have no table of accesses.
        let mut accesses: Vec<(BufferId, Accesses)> = Vec::new();
        for range in ranges.iter().filter(|r| r.writes && checks.race) {
            if let (Some(stored), true) =
                (self.buffers.get(&range.buffer), accesses.iter().all(|(id, _)| *id != range.buffer))
            {
                accesses.push((range.buffer, Accesses::new(stored.size.div_ceil(4) as usize)));
            }
        }
        let shadow = |range: &Range| BindingShadow {
            first: range.first,
            written: self
                .buffers
                .get(&range.buffer)
                .and_then(|s| s.written.as_ref())
                // A buffer that is written as a whole needs no look at its bits.
                .filter(|w| !w.known_full()),
            accesses: accesses.iter().find(|(id, _)| *id == range.buffer).map(|(_, a)| a),
        };
        let shadows: Vec<_> = ranges.iter().map(shadow).collect();
        let collector = Collector::default();
        let watch = || Watcher::new(checks, &shadows);
        let (result, _) =
            dispatch::run(&kernel.code, env, (pool, u64::MAX), watch, |w| collector.merge(w.finish()));
        (result, collector.finish(kernel, label))
    }

    /// The error of a kernel that does not end, at the loop that it was in.
    /// The hint names the option that gives more time.
    fn not_ended(&self, label: &str, kernel: &ReadyKernel, pc: usize, message: &str) -> Error {
        let span = kernel.code.spans.get(pc).copied().unwrap_or_default();
        kernel
            .source
            .error(ErrorKind::Timeout, &kernel.desc.name, span, message)
            .context(format!("dispatch `{label}`"))
            .with_detail("deadline", format!("{:?}", self.time_limit))
            .with_hint("a loop may never end; otherwise give each workgroup less work, or more time with the option `timeout=SECONDS`")
    }
}

/// Words that several threads may write.
/// The buffer stays ordinary memory; only the view is atomic.
#[allow(unsafe_code)]
fn as_atomic(words: &mut [u32]) -> &[AtomicU32] {
    // SAFETY: AtomicU32 has the size, alignment and bit validity of u32, and the exclusive borrow is given up for as
    // long as the shared one lives.
    unsafe { &*(std::ptr::from_mut(words) as *const [AtomicU32]) }
}
