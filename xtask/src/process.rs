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
    /// Seconds that it, and the processes that it has waited for, were on a processor, where the system tells.
    pub busy: Option<f64>,
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
    let mut busy = None;
    let (cause, status) = loop {
        let usage = Usage::read(&child);
        busy = usage.as_ref().map(|usage| usage.busy).or(busy);
        // The system forgets the usage once the end was told.
        if usage.is_none_or(|usage| usage.ended)
            && let Some(status) = child.try_wait()?
        {
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
    Ok(Ended { cause, code: status.and_then(|s| s.code()), seconds, busy, note })
}

/// What Linux tells of a process that nobody has waited for.
struct Usage {
    /// Seconds on a processor, of the process and of those that it has waited for.
    busy: f64,
    ended: bool,
}

impl Usage {
    fn read(child: &Child) -> Option<Usage> {
        Usage::parse(&std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?)
    }

    /// `ID (NAME) STATE …`, of which the fields 14 to 17 are hundredths of seconds.
    fn parse(stat: &str) -> Option<Usage> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 = fields.get(11..15)?.iter().map(|field| field.parse().unwrap_or(0)).sum();
        Some(Usage { busy: ticks as f64 / 100.0, ended: matches!(fields.first(), Some(&"Z" | &"X")) })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_that_of_the_process_and_of_its_children() {
        let stat = "7 (a) b) c) Z 1 7 7 0 -1 4194560 95 0 0 0 150 25 300 25 20 0 1 0";
        let usage = Usage::parse(stat).expect("all fields are there");
        assert!(usage.ended);
        assert_eq!(usage.busy, 5.0);
        assert!(!Usage::parse(&stat.replace(" Z ", " S ")).expect("another state").ended);
        assert!(Usage::parse("7 (a) Z 1").is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_command_that_computes_is_told_from_one_that_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let busy = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            let ended = run(&mut command, &folder.path().join("log"), Duration::MAX, &Stop::default());
            let ended = ended.expect("it starts");
            assert_eq!((ended.cause, ended.code), (Cause::Exited, Some(0)));
            ended.busy.expect("Linux tells")
        };
        let sleeps = busy("sleep 0.3");
        let counts = busy("(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); true");
        assert!(sleeps < 0.1 && counts > sleeps, "{sleeps} and {counts} s");
    }
}
