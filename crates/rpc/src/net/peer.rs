//! The other side of a connection: how long it is waited for, and how much it may send before it is let in.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the other side may take no byte of what is sent to it.
pub const SLOW: Duration = Duration::from_secs(30);

/// Bytes that a side may send which is not let in: a request, its largest first message, and what belongs to TLS.
const BUDGET: usize = 256 << 10;

/// How long the other side's system may answer nothing: a laptop whose lid is closed for less finds its session again, and a
/// session whose connection is gone ends within a minute.
#[cfg(target_os = "linux")]
const GONE: Duration = Duration::from_secs(45);

/// See the module.
pub struct Peer {
    /// It never blocks.
    tcp: TcpStream,
    limits: Mutex<Limits>,
    /// Whether it has sent anything.
    heard: AtomicBool,
    /// Bytes that it may still send; without a bound once it is let in.
    budget: AtomicUsize,
    /// Bytes of what was sent to it that it has taken.
    taken: AtomicU64,
}

/// How long the other side is waited for.
#[derive(Clone, Copy)]
struct Limits {
    /// When it must have been let in: until then no read and no write goes on for longer.
    until: Option<Instant>,
    /// How long it may take no byte of what is sent to it afterwards.
    slow: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peer {
    /// The other side of a connection that was accepted, and must be let in within a time.
    pub fn from_accepted(tcp: TcpStream, within: Duration) -> io::Result<Peer> {
        Peer::new(tcp, within, BUDGET)
    }

    /// The other side of a connection that this side has dialled.
    pub fn from_dialled(tcp: TcpStream, within: Duration) -> io::Result<Peer> {
        Peer::new(tcp, within, usize::MAX)
    }

    fn new(tcp: TcpStream, within: Duration, budget: usize) -> io::Result<Peer> {
        tcp.set_nodelay(true)?;
        tcp.set_nonblocking(true)?;
        keep_alive(&tcp)?;
        Ok(Peer {
            tcp,
            limits: Mutex::new(Limits { until: Some(Instant::now() + within), slow: SLOW }),
            heard: AtomicBool::new(false),
            budget: AtomicUsize::new(budget),
            taken: AtomicU64::new(0),
        })
    }

    /// Its socket, which never blocks.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The other side is let in: its time is not bounded any more, nor is what it sends.
    pub fn let_in(&self) {
        lock(&self.limits).until = None;
        self.budget.store(usize::MAX, Ordering::Release);
    }

    /// What comes next must end within a time from now.
    pub fn allow(&self, within: Duration) {
        lock(&self.limits).until = Some(Instant::now() + within);
    }

    /// How much it sends does not matter any more, because it is not kept.
    pub fn forget_budget(&self) {
        self.budget.store(usize::MAX, Ordering::Release);
    }

    /// How long it may take no byte of what is sent to it once it is let in, if that is not [`SLOW`].
    pub fn expect_within(&self, time: Duration) {
        lock(&self.limits).slow = time;
    }

    /// How long it may take no byte of what is sent to it.
    pub fn slow(&self) -> Duration {
        lock(&self.limits).slow
    }

    /// When it must have been let in; `None` if it is.
    pub fn deadline(&self) -> Option<Instant> {
        lock(&self.limits).until
    }

    /// Whether it has sent nothing.
    pub fn is_silent(&self) -> bool {
        !self.heard.load(Ordering::Acquire) && !super::awake::has_something(&SockRef::from(&self.tcp))
    }

    /// Notes that it has sent so much; fails if that is more than it may before it is let in.
    pub fn note_heard(&self, bytes: usize) -> io::Result<()> {
        self.heard.store(true, Ordering::Release);
        let left = self.budget.load(Ordering::Acquire);
        if left == usize::MAX {
            return Ok(());
        }
        let Some(left) = left.checked_sub(bytes) else {
            let text = format!("it has sent more than {BUDGET} bytes and is not let in");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        self.budget.store(left, Ordering::Release);
        Ok(())
    }

    /// Notes that it has taken so much.
    pub fn note_taken(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Bytes that it has taken.
    pub fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether it has closed its direction, and nothing of it is left to be read.
    pub fn has_closed(&self) -> bool {
        matches!(self.tcp.peek(&mut [0]), Ok(0))
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        // It may have ended.
        let _ = self.tcp.shutdown(Shutdown::Both);
    }
}

/// A connection whose other side has gone without a word is found out by the system, also while nothing is said.
fn keep_alive(tcp: &TcpStream) -> io::Result<()> {
    let probes = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    #[cfg(unix)]
    let probes = probes.with_retries(7);
    SockRef::from(tcp).set_tcp_keepalive(&probes)?;
    #[cfg(target_os = "linux")]
    SockRef::from(tcp).set_tcp_user_timeout(Some(GONE))?;
    Ok(())
}
