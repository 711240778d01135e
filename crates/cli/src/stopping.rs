//! Ctrl-C: the work at hand is asked to stop, and the process ends soon even if that work, such as a kernel, does not.
//!
//! There are three ways to end: work that looks at the request ends in order; work that does not is cut off after a
//! grace time, with its last words; a second Ctrl-C ends the process without either.

use crate::output;
use anyhow::{Context, Result};
use std::process::exit;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tapml::migrate::Stop;
use tapml::{Error, ErrorKind};

/// How long the work at hand may go on after the first request.
const GRACE: Duration = Duration::from_millis(1200);
/// How long the process may take to end in order, which a driver that still works may keep it from.
const ENDING: Duration = Duration::from_millis(400);

/// The part of the work that the next Ctrl-C ends in place of the whole.
static PART: Mutex<Option<Stop>> = Mutex::new(None);

/// Tells what was found so far, before the process ends.
type LastWords = Box<dyn FnOnce() + Send>;

/// Set by a command while it works; at most one command works in a process.
static LAST_WORDS: Mutex<Option<LastWords>> = Mutex::new(None);

/// How long the work at hand is given to end in order, in milliseconds; 0 as long as it does not look at the request.
static TIME_TO_END: AtomicU64 = AtomicU64::new(0);
/// How the process ends.
/// It is 2 for a command, and 0 for a server.
static CODE: AtomicI32 = AtomicI32::new(2);

/// A stop request that Ctrl-C and SIGTERM make. If the work at hand does not end, the process does: it says its last
/// words, nothing half written stays, exit code 2. A second request ends the process at once.
pub fn stop_on_signal() -> Result<Stop> {
    stop_on_signal_within(GRACE)
}

fn stop_on_signal_within(grace: Duration) -> Result<Stop> {
    let milliseconds = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
    TIME_TO_END.store(milliseconds.max(1), Ordering::Release);
    Ok(listen()?.clone())
}

/// From here on a request ends the process at once, with its last words and exit code 0: nothing is at work but what waits for
/// input.
pub fn end_on_signal() {
    TIME_TO_END.store(0, Ordering::Release);
    CODE.store(0, Ordering::Release);
}

/// A part of the work that the first Ctrl-C ends, while the process goes on. Until this is dropped.
pub struct StoppablePart(Stop);

impl StoppablePart {
    /// Begins the part. There is one at a time.
    pub fn begin() -> StoppablePart {
        let stop = Stop::new();
        *part() = Some(stop.clone());
        StoppablePart(stop)
    }

    /// Whether it was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.0.check().is_err()
    }
}

impl Drop for StoppablePart {
    fn drop(&mut self) {
        *part() = None;
    }
}

/// The part at work. A panic while it was held left nothing half done.
fn part() -> std::sync::MutexGuard<'static, Option<Stop>> {
    PART.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`stop_on_signal`], of a server: to be stopped is how it ends, with exit code 0.
pub fn stop_server_on_signal() -> Result<Stop> {
    stop_server_on_signal_within(GRACE)
}

/// As [`stop_server_on_signal`], of a server that takes up to so long to end in order.
pub fn stop_server_on_signal_within(grace: Duration) -> Result<Stop> {
    CODE.store(0, Ordering::Release);
    stop_on_signal_within(grace)
}

/// Ctrl-C and SIGTERM end the process from here on as [`stop_on_signal`] says, at once as long as that has not been called.
///
/// # Errors
/// If the system refuses the handler.
pub fn listen() -> Result<&'static Stop> {
    static STOP: OnceLock<Stop> = OnceLock::new();
    if let Some(stop) = STOP.get() {
        return Ok(stop);
    }
    let stop = STOP.get_or_init(Stop::new);
    let mut asked = false;
    on_signal(move |signal| {
        // Taken out: a part that does not stop leaves the next request to the process.
        if signal == ProcessSignal::Interrupt
            && let Some(part) = part().take()
        {
            return part.request();
        }
        // 130 is what a shell gives for a process that SIGINT ended.
        if std::mem::replace(&mut asked, true) {
            tapml::files::abandon();
            exit(130);
        }
        stop.request();
        let grace = Duration::from_millis(TIME_TO_END.load(Ordering::Acquire));
        // The handler has to return, so that a second signal is heard.
        std::thread::spawn(move || end(grace));
        if !grace.is_zero() {
            let server = CODE.load(Ordering::Acquire) == 0;
            let text = if server { "what is open may end" } else { "what is done so far is kept" };
            output::note("stopping", &format!("{text}; again to stop at once"));
        }
    })
    .context("could not install the signal handler")?;
    Ok(stop)
}

/// Who asks the process to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProcessSignal {
    /// A person by Ctrl-C, who may mean the part at work alone.
    Interrupt,
    /// The system, or a terminal that is closed: the whole process is meant.
    #[cfg(unix)]
    Terminate,
}

/// Has each signal handled, one after another, by a thread of its own.
#[cfg(unix)]
fn on_signal(mut handle: impl FnMut(ProcessSignal) + Send + 'static) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let heard = move || {
        for signal in signals.forever() {
            handle(if signal == SIGINT { ProcessSignal::Interrupt } else { ProcessSignal::Terminate });
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(heard)?;
    Ok(())
}

/// Has Ctrl-C handled by a thread of its own.
#[cfg(not(unix))]
fn on_signal(mut handle: impl FnMut(ProcessSignal) + Send + 'static) -> Result<()> {
    Ok(ctrlc::set_handler(move || handle(ProcessSignal::Interrupt))?)
}

/// What to tell if the process is stopped in the middle of work, until [`or_last_words`] or [`forget_last_words`].
pub fn set_last_words(words: impl FnOnce() + Send + 'static) {
    *lock() = Some(Box::new(words));
}

/// Passes on what the work gave. If it was stopped, the last words are said.
pub fn or_last_words<T>(work: tapml::Result<T>) -> tapml::Result<T> {
    match &work {
        Err(error) if error.kind() == ErrorKind::Interrupted => say_last_words(),
        _ => forget_last_words(),
    }
    work
}

/// There is nothing to tell any more.
pub fn forget_last_words() {
    *lock() = None;
}

/// Says them if they were not said yet.
fn say_last_words() {
    // Held meanwhile, so that the process does not end before they are said.
    let mut words = lock();
    if let Some(words) = words.take() {
        words();
    }
}

/// A panic while they were set does not keep them from being said.
fn lock() -> std::sync::MutexGuard<'static, Option<LastWords>> {
    LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process, unless the work at hand ends it before.
fn end(grace: Duration) {
    std::thread::sleep(grace);
    say_last_words();
    // Files that are half written are removed before the process is gone.
    tapml::files::abandon();
    // Exit handlers of a driver may wait for a kernel that does not end.
    std::thread::spawn(|| {
        std::thread::sleep(ENDING);
        std::process::abort();
    });
    let code = CODE.load(Ordering::Acquire);
    if code != 0 {
        let text = "stopped on request, in the middle of a kernel or a computation; nothing is half written";
        let error = Error::new(ErrorKind::Interrupted, text);
        let hint = "run the same command again; `migrate` goes on from its ledger";
        output::print_error(&error.with_hint(hint).into());
    }
    exit(code);
}
