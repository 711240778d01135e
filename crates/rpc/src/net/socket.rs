//! WebSockets of synchronous code: one thread reads a [`Socket`], and any may write to its [`Link`].

use super::awake::Awake;
use super::peer::Peer;
use super::stream::Stream;
use crate::wire::limits::{MAX_HELLO, MAX_MESSAGE};
use bytes::Bytes;
use futures_util::{Sink, Stream as _};
use socket2::SockRef;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio::time::{timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tungstenite::error::{CapacityError, Error};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Message, Result};

/// How often a writer looks around while the other side takes nothing.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How long a read waits if nothing else is said.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes that are read at once. So many are cleared for each try to read, whatever comes.
const READ: usize = 64 << 10;

/// The side that writes, shared.
pub struct Link {
    socket: Mutex<WebSocketStream<Stream>>,
    /// Held while a message is written.
    turn: Mutex<()>,
    peer: Arc<Peer>,
}

/// The side that reads.
pub struct Socket {
    link: Arc<Link>,
    /// What drives it, if it has its own.
    runtime: Option<Runtime>,
    /// A read returns after this at the latest, once the other side is let in.
    poll_interval: Duration,
    /// Largest message.
    most: usize,
    awake: Awake,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bounds of every WebSocket; until the other side is let in, [`Peer`] and [`Socket`] have tighter ones.
pub fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(READ)
}

/// Whether a read has only found nothing in time.
pub fn is_timeout(error: &Error) -> bool {
    matches!(error, Error::Io(error) if is_late(error))
}

/// Whether it was only too late.
pub fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn late_error() -> Error {
    Error::Io(io::ErrorKind::TimedOut.into())
}

impl Link {
    /// Sends one binary message.
    pub fn send(&self, bytes: Bytes) -> io::Result<()> {
        self.write(Message::Binary(bytes)).map_err(io_error)
    }

    /// Sends a ping, which the other side answers by itself.
    pub fn ping(&self) -> io::Result<()> {
        self.write(Message::Ping(Bytes::new())).map_err(io_error)
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        self.peer.close();
    }

    /// Tells the other side that nothing follows.
    pub fn finish(&self) {
        let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        // It may be gone.
        let _ = self.write(Message::Close(Some(normal)));
        let _turn = lock(&self.turn);
        let _ = self.drive(|cx| Pin::new(lock(&self.socket).get_mut()).poll_shutdown(cx).map_err(Error::Io));
    }

    /// The other side, and how long it is waited for.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Sends a message with what has yet to be sent.
    pub fn write(&self, message: Message) -> Result<()> {
        let _turn = lock(&self.turn);
        self.put(message)?;
        self.drive(|cx| Pin::new(&mut *lock(&self.socket)).poll_flush(cx))
    }

    /// Sends a message, at the latest with the next one that is written or with [`Link::flush`].
    pub fn write_later(&self, message: Message) -> Result<()> {
        let _turn = lock(&self.turn);
        self.put(message)
    }

    /// Sends what has yet to be sent.
    pub fn flush(&self) -> Result<()> {
        let _turn = lock(&self.turn);
        self.drive(|cx| Pin::new(&mut *lock(&self.socket)).poll_flush(cx))
    }

    /// Sends bytes as they are, to see what the other side does with them if they are no frame.
    pub fn write_raw(&self, bytes: &[u8]) -> io::Result<()> {
        let (_turn, mut left) = (lock(&self.turn), bytes);
        let write = |cx: &mut Context<'_>| {
            let mut socket = lock(&self.socket);
            while !left.is_empty() {
                let taken = ready!(Pin::new(socket.get_mut()).poll_write(cx, left)).map_err(Error::Io)?;
                left = &left[taken..];
            }
            Pin::new(socket.get_mut()).poll_flush(cx).map_err(Error::Io)
        };
        self.drive(write).map_err(io_error)
    }

    fn put(&self, message: Message) -> Result<()> {
        let mut message = Some(message);
        self.drive(|cx| {
            let mut socket = lock(&self.socket);
            let mut socket = Pin::new(&mut *socket);
            ready!(socket.as_mut().poll_ready(cx))?;
            Poll::Ready(message.take().map_or(Ok(()), |message| socket.start_send(message)))
        })
    }

    /// Goes on until it is done, as long as the other side takes bytes. Who takes a byte now and then gets no more time to be
    /// let in than who takes none.
    fn drive(&self, mut go_on: impl FnMut(&mut Context<'_>) -> Poll<Result<()>>) -> Result<()> {
        let until = self.peer.deadline();
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(late_error());
        }
        // Nearly always the system takes it at once, and no runtime is needed.
        if let Poll::Ready(done) = go_on(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        let mut going = pin!(poll_fn(go_on));
        super::runtime()?.handle().block_on(async {
            let (mut taken, mut since) = (self.peer.taken_bytes(), Instant::now());
            loop {
                let left = until.map_or(LOOK_INTERVAL, |until| {
                    until.saturating_duration_since(Instant::now()).min(LOOK_INTERVAL)
                });
                let left = left.min(self.peer.slow().saturating_sub(since.elapsed()));
                if let Ok(done) = timeout(left, &mut going).await {
                    return done;
                }
                if taken != self.peer.taken_bytes() {
                    (taken, since) = (self.peer.taken_bytes(), Instant::now());
                } else if since.elapsed() >= self.peer.slow() {
                    return Err(late_error());
                }
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(late_error());
                }
                // The system may keep what is written for one that has closed and says no more.
                if self.peer.has_closed() {
                    return Err(Error::Io(io::ErrorKind::ConnectionReset.into()));
                }
            }
        })
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl Socket {
    /// Both sides of an open WebSocket, which is read on this runtime, or on the one of all connections.
    pub fn new(
        socket: WebSocketStream<Stream>,
        peer: Arc<Peer>,
        runtime: Option<Runtime>,
    ) -> (Arc<Link>, Socket) {
        let link = Arc::new(Link { socket: Mutex::new(socket), turn: Mutex::default(), peer });
        let (poll_interval, awake) = (POLL_INTERVAL, Awake::default());
        (link.clone(), Socket { link, runtime, poll_interval, most: MAX_HELLO, awake })
    }

    /// The side that writes.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The other side is let in: from here on a read returns after `poll_interval` at the latest.
    pub fn let_in(&mut self, poll_interval: Duration) {
        self.link.peer.let_in();
        self.poll_interval = poll_interval;
    }

    /// Messages of a session may be large.
    pub fn widen(&mut self) {
        self.most = MAX_MESSAGE;
    }

    /// From here on the thread that reads waits for the system itself, instead of for another thread which does.
    pub fn drive_here(&mut self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        {
            let _entered = runtime.enter();
            lock(&self.link.socket).get_mut().move_here()?;
        }
        self.runtime = Some(runtime);
        Ok(())
    }

    /// The next message. Fails by [`is_timeout`] if none comes in time.
    pub fn read(&mut self) -> Result<Message> {
        let until = self.link.peer.deadline();
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(late_error());
        }
        let link = self.link.clone();
        let go_on = |cx: &mut Context<'_>| Pin::new(&mut *lock(&link.socket)).poll_next(cx);
        let next = match go_on(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => {
                let Socket { runtime, poll_interval, awake, .. } = self;
                let until = until.unwrap_or_else(|| Instant::now() + *poll_interval);
                let next = || wait(runtime.as_ref(), until, go_on);
                awake.read(&SockRef::from(link.peer.tcp()), next)?
            }
        };
        let message = next.unwrap_or(Err(Error::ConnectionClosed))?;
        match (message.len(), self.most) {
            (size, max_size) if size > max_size => {
                Err(Error::Capacity(CapacityError::MessageTooLong { size, max_size }))
            }
            _ => Ok(message),
        }
    }

    /// Reads and forgets what still comes, so that the other side, which is told why it is not heard, gets to read that before
    /// the connection ends; for a time at most.
    pub fn drain(&mut self, within: Duration) {
        self.link.peer.forget_budget();
        let (link, mut bytes) = (self.link.clone(), vec![0; 16 << 10]);
        let read = |cx: &mut Context<'_>| {
            let mut socket = lock(&link.socket);
            loop {
                let mut buffer = ReadBuf::new(&mut bytes);
                ready!(Pin::new(socket.get_mut()).poll_read(cx, &mut buffer))?;
                if buffer.filled().is_empty() {
                    return Poll::Ready(Ok::<_, io::Error>(()));
                }
            }
        };
        // Whatever it was, there is no more to come.
        let _ = wait(self.runtime.as_ref(), Instant::now() + within, read);
    }
}

/// Waits for something until a time.
fn wait<T>(
    runtime: Option<&Runtime>,
    until: Instant,
    go_on: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T> {
    let waiting = async { timeout_at(until.into(), poll_fn(go_on)).await.map_err(|_| late_error()) };
    match runtime {
        Some(own) => own.block_on(waiting),
        None => super::runtime()?.handle().block_on(waiting),
    }
}
