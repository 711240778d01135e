//! The connection to wgpu: every call into it goes through here, so that errors, panics and device loss become
//! [`Error`]s of the call that caused them.
//!
//! wgpu's native backends report an error before the call that caused it returns. One handler that stores errors is
//! therefore enough, and cheaper than pushing and popping error scopes around each call.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tapml_graph::{Error, ErrorKind, Result};

/// Labels kept for the trace of an error.
/// Enough to see what the device was at.
const RECENT: usize = 32;

/// A wgpu device and queue with a place where their errors gather.
pub(crate) struct Gpu {
    /// Used through [`Gpu::call`] and [`Gpu::compile`].
    device: wgpu::Device,
    /// Work runs in the order in which it is submitted.
    queue: wgpu::Queue,
    /// Shared with the callbacks, which wgpu may run on any thread.
    sink: Arc<Sink>,
    /// Labels of the last commands, oldest first.
    recent: VecDeque<Arc<str>>,
    /// How long one wait may take.
    timeout: Duration,
}

/// Where callbacks leave what they report.
#[derive(Default)]
struct Sink {
    /// Whether `state` holds anything: a look at it costs less than a lock.
    any: AtomicBool,
    state: Mutex<GpuState>,
}

/// What was reported and not yet collected.
#[derive(Default)]
struct GpuState {
    /// In the order of the reports.
    errors: Vec<wgpu::Error>,
    /// Why the device is lost; the first reason stays.
    lost: Option<String>,
}

impl Sink {
    /// A panic while the lock was held leaves plain data, so poisoning is ignored.
    fn lock(&self) -> MutexGuard<'_, GpuState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and raises the flag.
    fn put(&self, change: impl FnOnce(&mut GpuState)) {
        change(&mut self.lock());
        // After the change, so that who sees the flag finds what was put.
        self.any.store(true, Ordering::Release);
    }

    /// Marks the device as lost.
    fn lose(&self, why: impl Into<String>) {
        self.put(|state| {
            state.lost.get_or_insert(why.into());
        });
    }
}

impl Gpu {
    /// Takes a device over and installs the callbacks.
    pub(crate) fn new(device: wgpu::Device, queue: wgpu::Queue, timeout: Duration) -> Gpu {
        let sink = Arc::new(Sink::default());
        let errors = Arc::clone(&sink);
        device.on_uncaptured_error(Arc::new(move |error| errors.put(|state| state.errors.push(error))));
        let losses = Arc::clone(&sink);
        device.set_device_lost_callback(move |reason, message| {
            losses.lose(match message.trim() {
                // Some drivers give no message.
                "" => format!("{reason:?}").to_lowercase(),
                text => text.to_string(),
            });
        });
        Gpu { device, queue, sink, recent: VecDeque::with_capacity(RECENT), timeout }
    }

    /// Runs calls into wgpu and returns what went wrong in them. `doing` completes "could not …".
    ///
    /// # Errors
    ///
    /// A lost device, the first error that wgpu reported, or [`ErrorKind::DeviceLost`] after a panic.
    pub(crate) fn call<T>(
        &self,
        doing: impl FnOnce() -> String,
        calls: impl FnOnce(&wgpu::Device, &wgpu::Queue) -> T,
    ) -> Result<T> {
        self.alive()?;
        let value = self.catch_panic(calls).map_err(|panic| self.crash_error(&panic))?;
        self.check_errors(value, doing)
    }

    /// As [`Gpu::call`] for calls that compile a kernel. A panic there is a flaw of the shader translator: it refuses the
    /// kernel and leaves the device as it was.
    pub(crate) fn compile<T>(
        &self,
        doing: impl FnOnce() -> String,
        calls: impl FnOnce(&wgpu::Device, &wgpu::Queue) -> T,
    ) -> Result<T> {
        self.alive()?;
        match self.catch_panic(calls) {
            Ok(value) => self.check_errors(value, doing),
            Err(panic) => {
                self.alive()?;
                Err(Error::new(
                    ErrorKind::Compile,
                    format!("wgpu's shader translator failed: {}", panic.trim()),
                ))
            }
        }
    }

    /// As [`Gpu::compile`], on a thread beside others. `None` if anything goes wrong, which no other call gets to see.
    pub(crate) fn compile_aside<T>(&self, calls: impl FnOnce(&wgpu::Device) -> Option<T>) -> Option<T> {
        self.alive().ok()?;
        let caught = self.catch_panic(|device, _| {
            // Scopes belong to their thread, and are popped in reverse order.
            let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
            let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
            let value = calls(device);
            let errors = [validation, internal, memory].map(|scope| pollster::block_on(scope.pop()));
            value.filter(|_| errors.iter().all(Option::is_none))
        });
        caught.ok().flatten()
    }

    /// Runs calls and turns a panic into its text. wgpu panics where it cannot report.
    fn catch_panic<T>(
        &self,
        calls: impl FnOnce(&wgpu::Device, &wgpu::Queue) -> T,
    ) -> std::result::Result<T, String> {
        catch_unwind(AssertUnwindSafe(|| calls(&self.device, &self.queue)))
            .map_err(|p| panic_text(p.as_ref()))
    }

    /// The value, unless a callback reported something meanwhile.
    fn check_errors<T>(&self, value: T, doing: impl FnOnce() -> String) -> Result<T> {
        if self.sink.any.load(Ordering::Acquire) { self.collect(&doing()).map(|()| value) } else { Ok(value) }
    }

    /// Fails if the device is lost.
    pub(crate) fn alive(&self) -> Result<()> {
        if !self.sink.any.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.sink.lock().lost {
            Some(why) => Err(self.lost_error(why)),
            None => Ok(()),
        }
    }

    /// Waits until a submission, or all work so far, is done.
    pub(crate) fn finish(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let wait = wgpu::PollType::Wait { submission_index: submission, timeout: Some(self.timeout) };
        let polled = self.call(|| "wait for the device".into(), |device, _| device.poll(wait))?;
        match polled {
            Ok(_) => Ok(()),
            // What is still running may never end, and nothing behind it would.
            Err(wgpu::PollError::Timeout) => {
                self.sink.lose(format!("submitted work was not done after {} s", self.timeout.as_secs()));
                self.alive().map_err(|e| e.with_hint("a larger `timeout=SECONDS` option waits longer"))
            }
            Err(error) => Err(self.trace(Error::bug(format!("could not wait for the device: {error}")))),
        }
    }

    /// Gives the device up: all later calls fail as after a loss.
    pub(crate) fn destroy(&self) {
        self.sink.lose("the device was closed");
        // wgpu frees what the device holds; handles to it become invalid.
        self.device.destroy();
    }

    /// Remembers the labels of commands that were handed to the device.
    pub(crate) fn remember(&mut self, labels: &[Arc<str>]) {
        for label in &labels[labels.len().saturating_sub(RECENT)..] {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(Arc::clone(label));
        }
    }

    /// Adds the last commands to an error.
    pub(crate) fn trace(&self, error: Error) -> Error {
        if self.recent.is_empty() {
            error
        } else {
            error.with_detail("recent", self.recent.iter().map(|l| &**l).collect::<Vec<_>>().join("\n"))
        }
    }

    /// Takes the errors and gives the first one. A loss is not taken: it stays.
    fn collect(&self, doing: &str) -> Result<()> {
        let mut state = self.sink.lock();
        let errors = std::mem::take(&mut state.errors);
        if let Some(why) = &state.lost {
            return Err(self.lost_error(why));
        }
        // Under the lock, so that a report that comes now raises it again.
        self.sink.any.store(false, Ordering::Release);
        // Building the error takes time; callbacks need the lock.
        drop(state);
        match errors.into_iter().next() {
            Some(error) => Err(self.trace(explain(doing, &error))),
            None => Ok(()),
        }
    }

    /// The error of every call after a loss, with the last commands.
    fn lost_error(&self, why: &str) -> Error {
        let error = Error::new(ErrorKind::DeviceLost, format!("the device was lost: {why}"));
        self.trace(error.with_hint("open the device again; what its buffers held is gone"))
    }

    /// A panic inside wgpu leaves its state unknown, so the device counts as lost.
    fn crash_error(&self, panic: &str) -> Error {
        self.sink.lose(format!("wgpu failed: {}", panic.trim()));
        let state = self.sink.lock();
        self.lost_error(state.lost.as_deref().unwrap_or(panic))
    }
}

/// The message of a panic; panics with other payloads have none.
fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_string()
}

/// An error of wgpu as one of ours: the innermost cause as the message, all of it as the detail `log`.
pub(crate) fn explain(doing: &str, error: &wgpu::Error) -> Error {
    let log = error.to_string();
    let kind = match error {
        wgpu::Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        wgpu::Error::Validation { .. } => ErrorKind::InvalidInput,
        // The driver refused something that is valid.
        wgpu::Error::Internal { .. } => ErrorKind::Unsupported,
    };
    let cause = match kind {
        ErrorKind::OutOfMemory => "out of device memory".to_string(),
        _ => innermost(&log),
    };
    Error::new(kind, format!("could not {doing}: {cause}")).with_detail("log", log)
}

/// wgpu writes causes as lines of growing indentation; the last one says what is wrong.
pub(crate) fn innermost(log: &str) -> String {
    let mut lines = log.lines().map(str::trim).filter(|l| !l.is_empty());
    let last = lines.next_back().unwrap_or("no reason given");
    last.trim_end_matches('.').to_string()
}
