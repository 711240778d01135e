//! Reading from a stream on which answers come soon.
//!
//! A thread that has slept for a millisecond takes tens of microseconds to wake, in a virtual machine more than a hundred,
//! and a step of a session (a decoded token) is handed over by four of them. Where what was waited for has come soon of
//! late, and cores are to be had, the reader stays awake for the next.

use socket2::SockRef;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::thread::{available_parallelism, yield_now};
use std::time::{Duration, Instant};

/// Longest wait that is spent awake. Of longer ones, what waking costs is less than a tenth.
const SOON: Duration = Duration::from_millis(3);

/// With fewer cores a thread that stays awake would be in the way of those that work.
const CORES: usize = 8;

/// Whether a reader stays awake.
#[derive(Debug)]
pub struct Awake {
    /// Longest wait that is spent awake here; zero where cores are few.
    most: Duration,
    /// Whether the last wait was so short.
    soon: bool,
}

impl Default for Awake {
    fn default() -> Awake {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Awake::for_at_most(if cores >= CORES { SOON } else { Duration::ZERO })
    }
}

impl Awake {
    /// A reader that stays awake for so long.
    pub fn for_at_most(most: Duration) -> Awake {
        Awake { most, soon: false }
    }

    /// Reads by `read`, as soon as the socket has something.
    pub fn read<T, E>(&mut self, socket: &SockRef<'_>, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let start = Instant::now();
        while self.soon && start.elapsed() < self.most && !has_something(socket) {
            yield_now();
        }
        let done = read();
        self.soon = done.is_ok() && start.elapsed() < self.most;
        done
    }
}

/// Whether a read would return at once.
#[cfg(unix)]
pub fn has_something(socket: &SockRef<'_>) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let looked = socket.recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    !looked.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}

/// Elsewhere a socket cannot be asked without waiting.
#[cfg(not(unix))]
pub fn has_something(_: &SockRef<'_>) -> bool {
    true
}

/// A stream that is read so.
pub struct Alert<S> {
    /// The stream.
    pub stream: S,
    awake: Awake,
}

impl<S> Alert<S> {
    /// See [`Awake`].
    pub fn new(stream: S) -> Alert<S> {
        Alert { stream, awake: Awake::default() }
    }
}

impl<S: Read> Read for Alert<S>
where
    for<'s> SockRef<'s>: From<&'s S>,
    for<'s> &'s S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Alert { stream, awake } = self;
        awake.read(&SockRef::from(&*stream), || (&*stream).read(buffer))
    }
}

impl<S: Write> Write for Alert<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// One wait for a byte that comes after a pause; whether the next one is spent awake.
    fn wait(awake: &mut Awake, pause: Duration) -> bool {
        let (here, mut there) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || {
            std::thread::sleep(pause);
            there.write_all(&[7]).unwrap();
            there
        });
        let mut byte = [0];
        let read = awake.read(&SockRef::from(&here), || (&here).read(&mut byte));
        assert_eq!((read.unwrap(), byte), (1, [7]));
        drop(sender.join().unwrap());
        awake.soon
    }

    #[test]
    fn short_waits_are_spent_awake_and_long_ones_asleep() {
        let mut awake = Awake::for_at_most(Duration::from_millis(200));
        assert!(wait(&mut awake, Duration::ZERO) && wait(&mut awake, Duration::from_millis(1)));
        assert!(!wait(&mut awake, Duration::from_millis(300)), "what comes late is waited for asleep");
        let (here, there) = UnixStream::pair().unwrap();
        awake.soon = true;
        drop(there);
        let start = Instant::now();
        assert_eq!(awake.read(&SockRef::from(&here), || (&here).read(&mut [0])).unwrap(), 0);
        assert!(start.elapsed() < Duration::from_millis(200), "an end is something");
        assert!(!wait(&mut Awake::for_at_most(Duration::ZERO), Duration::ZERO));
    }
}
