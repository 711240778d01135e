//! Where a session runs: a process of its own, or a thread where processes cannot be had.

use crate::executor;
use crate::net::awake::Alert;
use crate::offer::Offer;
use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes kept of what a session's process prints.
const OUTPUT: usize = 16 << 10;

/// How long a process may take to end after its stream has.
const FAREWELL: Duration = Duration::from_secs(5);

/// How sessions are kept apart.
#[derive(Clone)]
pub enum Isolation {
    /// Each session is a process, started by the command that this makes; the process calls
    /// [`crate::agent::run_session`].
    Process(Arc<dyn Fn() -> Command + Send + Sync>),
    /// Each session is a thread of this process, which a crash ends and a hang keeps.
    Thread(Arc<dyn Offer>),
}

/// A running session's streams.
pub struct Streams {
    /// Requests.
    pub to: Box<dyn Write + Send>,
    /// Replies.
    pub from: Box<dyn Read + Send>,
}

/// A running session.
pub enum Worker {
    /// A process and the end of what it printed.
    Process {
        /// The process.
        child: Mutex<Child>,
        /// Reads what it prints until it ends.
        output: Mutex<Option<JoinHandle<()>>>,
        /// The end of it.
        tail: Arc<Mutex<VecDeque<u8>>>,
    },
    /// A thread.
    Thread,
}

/// How a session's process ended.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it, or 0.
    pub signal: u32,
    /// The end of what it printed.
    pub output: String,
}

impl Worker {
    /// Starts a session.
    pub fn start(isolation: &Isolation) -> io::Result<(Worker, Streams)> {
        match isolation {
            Isolation::Process(command) => process(command()),
            Isolation::Thread(offer) => thread(offer.clone()),
        }
    }

    /// Ends the process. A thread goes on until it looks at its streams again.
    pub fn kill(&self) {
        if let Worker::Process { child, .. } = self {
            // It may have ended already.
            let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
        }
    }

    /// The process's id.
    pub fn id(&self) -> Option<u32> {
        match self {
            Worker::Process { child, .. } => Some(child.lock().unwrap_or_else(PoisonError::into_inner).id()),
            Worker::Thread => None,
        }
    }

    /// Waits for the process, whose stream has ended, and tells how it did.
    pub fn end(&self) -> End {
        let Worker::Process { child, output, tail } = self else { return End::default() };
        let status = farewell(&mut child.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(reader) = output.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A grandchild may hold the pipe open: then what has come so far must do.
            let until = Instant::now() + Duration::from_secs(1);
            while !reader.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = tail.iter().copied().collect();
        End {
            code: status.and_then(|s| s.code()),
            signal: status.map_or(0, signal),
            output: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        if let Worker::Process { child, .. } = self {
            let _ = child.get_mut().unwrap_or_else(PoisonError::into_inner).wait();
        }
    }
}

fn farewell(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + FAREWELL;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                let _ = child.kill();
                return child.wait().ok();
            }
        }
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> u32 {
    use std::os::unix::process::ExitStatusExt;
    status.signal().unwrap_or(0) as u32
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> u32 {
    0
}

fn thread(offer: Arc<dyn Offer>) -> io::Result<(Worker, Streams)> {
    let (mut requests, to) = io::pipe()?;
    let (from, mut replies) = io::pipe()?;
    std::thread::Builder::new().name("session".into()).spawn(move || {
        if let Err(error) = executor::serve(&mut requests, &mut replies, offer.as_ref()) {
            log::debug!("a session ended: {error}");
        }
    })?;
    Ok((Worker::Thread, Streams { to: Box::new(to), from: Box::new(from) }))
}

/// Both streams are the process's standard input, a socket: what drivers print to standard output cannot get into them.
#[cfg(unix)]
fn process(mut command: Command) -> io::Result<(Worker, Streams)> {
    use std::os::{fd::OwnedFd, unix::net::UnixStream};
    let (here, there) = UnixStream::pair()?;
    let (printed, print) = io::pipe()?;
    command.stdin(Stdio::from(OwnedFd::from(there))).stdout(print.try_clone()?).stderr(print);
    let child = command.spawn()?;
    drop(command);
    let streams =
        Streams { to: Box::new(here.try_clone()?), from: Box::new(BufReader::new(Alert::new(here))) };
    Ok((watch(child, printed), streams))
}

/// Standard input and output; what drivers print to standard output ends the session.
#[cfg(not(unix))]
fn process(mut command: Command) -> io::Result<(Worker, Streams)> {
    let (printed, print) = io::pipe()?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(print).spawn()?;
    drop(command);
    let missing = || io::Error::other("the process has no streams");
    let to = Box::new(child.stdin.take().ok_or_else(missing)?);
    let from = Box::new(child.stdout.take().ok_or_else(missing)?);
    Ok((watch(child, printed), Streams { to, from }))
}

fn watch(child: Child, mut printed: impl Read + Send + 'static) -> Worker {
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let keep = tail.clone();
    let output = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(have @ 1..) = printed.read(&mut buffer) {
            let mut tail = keep.lock().unwrap_or_else(PoisonError::into_inner);
            tail.extend(&buffer[..have]);
            let over = tail.len().saturating_sub(OUTPUT);
            tail.drain(..over);
        }
    });
    Worker::Process { child: Mutex::new(child), output: Mutex::new(Some(output)), tail }
}

/// Ends this process when the agent has ended: a kernel that never ends would keep it otherwise.
#[cfg(unix)]
pub fn end_with_the_agent() {
    let agent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == agent {
            std::thread::sleep(Duration::from_millis(500));
        }
        std::process::exit(1);
    });
}

/// Only the end of its stream ends this process.
#[cfg(not(unix))]
pub fn end_with_the_agent() {}

/// The streams of a process that [`process`] started, seen from inside.
#[cfg(unix)]
pub fn inherit_streams() -> io::Result<Streams> {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    Ok(Streams { to: Box::new(stream.try_clone()?), from: Box::new(BufReader::new(Alert::new(stream))) })
}

/// The streams of a process that [`process`] started, seen from inside.
#[cfg(not(unix))]
pub fn inherit_streams() -> io::Result<Streams> {
    Ok(Streams { to: Box::new(io::stdout()), from: Box::new(io::stdin()) })
}
