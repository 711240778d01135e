//! Runs one command with a time limit, in a process group of its own that ends with it.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long a command may take to end in order after it was asked to.
const GRACE: Duration = Duration::from_secs(3);
/// How long a killed command may take to be gone: one that a driver holds may never be.
const KILLED: Duration = Duration::from_secs(10);

/// Counts the requests to stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Counts Ctrl-C and SIGTERM from now on.
    pub fn on_signal() -> Result<Stop> {
        let stop = Stop::default();
        let count = stop.0.clone();
        ctrlc::set_handler(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .context("could not install the signal handler")?;
        Ok(stop)
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Asks for it as Ctrl-C does.
    #[cfg(all(test, unix))]
    pub fn request(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it was asked for more than once.
    fn urgent(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Exited,
    TimeLimit,
    Stopped,
}

/// How a command ended.
pub struct Ended {
    pub cause: Cause,
    /// Absent if a signal ended it, or if it could not be killed.
    pub code: Option<i32>,
    pub seconds: f64,
    /// What to tell beside the exit code.
    pub note: Option<String>,
}

/// Runs a command, its output to the file `log`, for `limit` at most.
pub fn run(command: &mut Command, log: &Path, limit: Duration, stop: &Stop) -> Result<Ended> {
    let file = std::fs::File::create(log).with_context(|| format!("could not create {}", log.display()))?;
    let errors = file.try_clone().context("could not share the log")?;
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    own_group(command);
    let start = Instant::now();
    let mut child = command.spawn().context("could not start the command")?;
    let (cause, status) = loop {
        if let Some(status) = child.try_wait()? {
            break (Cause::Exited, Some(status));
        }
        let cause = match (stop.is_requested(), start.elapsed() >= limit) {
            (true, _) => Cause::Stopped,
            (false, true) => Cause::TimeLimit,
            (false, false) => {
                std::thread::sleep(POLL);
                continue;
            }
        };
        break (cause, end(&mut child, stop)?);
    };
    let seconds = start.elapsed().as_secs_f64();
    let note = match status {
        None => Some(format!("process {} could not be killed and may still hold the device", child.id())),
        Some(status) if status.code().is_none() && cause == Cause::Exited => {
            Some(format!("it ended by {status}"))
        }
        Some(_) => None,
    };
    Ok(Ended { cause, code: status.and_then(|s| s.code()), seconds, note })
}

/// Asks the command and all that it started to end, and kills what does not. None if that does not help either.
fn end(child: &mut Child, stop: &Stop) -> Result<Option<ExitStatus>> {
    signal(child, false);
    let asked = Instant::now();
    let mut status = None;
    while status.is_none() && asked.elapsed() < GRACE && !stop.urgent() {
        std::thread::sleep(POLL);
        status = child.try_wait()?;
    }
    // Also when the command itself has ended: what it started may not have.
    signal(child, true);
    let killed = Instant::now();
    while status.is_none() && killed.elapsed() < KILLED {
        std::thread::sleep(POLL);
        status = child.try_wait()?;
    }
    Ok(status)
}

#[cfg(unix)]
fn own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(unix)]
fn signal(child: &mut Child, kill: bool) {
    use nix::sys::signal::{Signal, killpg};
    let signal = if kill { Signal::SIGKILL } else { Signal::SIGTERM };
    // It fails where nobody is left in the group, which is what is wanted.
    if let Ok(id) = i32::try_from(child.id()) {
        let _ = killpg(nix::unistd::Pid::from_raw(id), signal);
    }
}

#[cfg(not(unix))]
fn own_group(_: &mut Command) {}

#[cfg(not(unix))]
fn signal(child: &mut Child, _: bool) {
    let _ = child.kill();
}
