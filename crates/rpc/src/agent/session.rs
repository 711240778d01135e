//! One session of an agent: requests go from the client's connection to the session's process, replies come back, and a
//! watch is kept on both.

use super::config::Settings;
use super::journal::Journal;
use super::worker::{Streams, Worker};
use crate::executor::blobs::Blobs;
use crate::net::{Link, Socket, is_timeout};
use crate::pipe;
use crate::recorder::{self, Doing};
use crate::wire::limits::{MAX_MESSAGE, PIECE, WINDOW, WINDOW_COUNT, too_large};
use crate::wire::{self, Reason, Reply, Request, ToClient, convert};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tapml_kernels::Program;
use tungstenite::Message;

/// How often the watch looks.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long a client may take to read the last message.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Longest message that is given to the process without a detour: less than any pipe holds.
const DIRECT: usize = 32 << 10;

/// Longest program that is looked into for a post-mortem.
const PROGRAM: usize = 64 << 20;

/// A session whose process has opened its device.
pub struct Session {
    pub link: Arc<Link>,
    pub socket: Socket,
    pub worker: Worker,
    pub streams: Streams,
    pub recorder: PathBuf,
    /// The folder of blobs.
    pub blobs: PathBuf,
    pub settings: Settings,
    pub stop: Arc<AtomicBool>,
    /// The number of the hello.
    pub hello: u64,
}

/// What the threads of a session share.
struct Shared {
    link: Arc<Link>,
    /// To the process, until the session is over.
    to: Mutex<Option<Box<dyn io::Write + Send>>>,
    worker: Worker,
    recorder: PathBuf,
    blobs: PathBuf,
    journal: Mutex<Journal>,
    queue: Mutex<VecDeque<(u64, Bytes)>>,
    queued: Condvar,
    /// Why the agent ended the process, and how long the request had been running.
    reason: Mutex<Option<(Reason, Duration)>>,
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Serves the client until it leaves or the process ends.
    pub fn run(self) {
        let Streams { to, mut from } = self.streams;
        let shared = Arc::new(Shared {
            link: self.link,
            to: Mutex::new(Some(to)),
            worker: self.worker,
            recorder: self.recorder,
            blobs: self.blobs,
            journal: Mutex::default(),
            queue: Mutex::default(),
            queued: Condvar::new(),
            reason: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let (feeder, answerer) = (shared.clone(), shared.clone());
        let feed = std::thread::spawn(move || feeder.feed());
        let answer = std::thread::spawn(move || answerer.answer(&mut from));
        let mut front = Front {
            shared: shared.clone(),
            socket: self.socket,
            settings: self.settings,
            stop: self.stop,
            last: self.hello,
            heard: Instant::now(),
            looked: Instant::now(),
            doing: ((0, 0), Instant::now()),
            cancel: None,
        };
        let client_left = front.listen();
        if client_left {
            shared.link.close();
        }
        shared.end();
        // A session on a thread of this process may hang on; it is left alone.
        if let Worker::Process { .. } = shared.worker {
            if client_left {
                shared.worker.kill();
            }
            let _ = (feed.join(), answer.join());
        }
        front.drain();
        shared.link.close();
    }
}

impl Shared {
    /// Gives requests to the process, and closes its stream at the end.
    fn feed(&self) {
        self.feed_all();
        *lock(&self.to) = None;
    }

    fn feed_all(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let (seq, message) = loop {
                if self.over.load(Ordering::Acquire) {
                    return;
                }
                match queue.pop_front() {
                    Some(next) => break next,
                    None => queue = self.queued.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            let mut to = lock(&self.to);
            let Some(to) = to.as_mut() else { return };
            if pipe::write(to, seq, &message).is_err() {
                // The process has ended; whoever reads from it tells how.
                return;
            }
        }
    }

    /// Gives a request to the process at once, which saves waking a thread. False if it must queue.
    fn feed_now(&self, seq: u64, message: &[u8]) -> bool {
        let Ok(mut to) = self.to.try_lock() else { return false };
        let Some(to) = to.as_mut().filter(|_| lock(&self.queue).is_empty()) else { return false };
        // If the process has ended, whoever reads from it tells how.
        let _ = pipe::write(to, seq, message);
        true
    }

    /// The session is over: whoever waits for requests stops. False if it was over before.
    fn end(&self) -> bool {
        let first = !self.over.swap(true, Ordering::AcqRel);
        let _queue = lock(&self.queue);
        self.queued.notify_all();
        first
    }

    /// Gives replies to the client, and a post-mortem at the process's end.
    fn answer(&self, from: &mut impl io::Read) {
        loop {
            match pipe::read(from) {
                Ok(Some((seq, message))) => {
                    lock(&self.journal).finish(seq);
                    if self.link.send(message).is_err() {
                        // The client is gone, or takes nothing.
                        self.link.close();
                        self.worker.kill();
                        self.end();
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    self.worker.kill();
                    break;
                }
            }
        }
        // What ran is read before the session is over, while the recorder's file is sure to exist.
        let doing = recorder::last(&self.recorder).unwrap_or_default();
        if !self.end() {
            return;
        }
        let end = self.worker.end();
        let (reason, busy) = lock(&self.reason)
            .take()
            .unwrap_or((if end.signal == 9 { Reason::Killed } else { Reason::Crashed }, Duration::ZERO));
        self.report(reason, doing, end, busy);
    }

    /// A program whose pieces the session's process has kept.
    fn program(&self, pieces: &[Bytes]) -> Option<Program> {
        if pieces.len() * PIECE > PROGRAM {
            return None;
        }
        let mut blobs = Blobs::new(&self.blobs.display().to_string(), u64::MAX);
        let all = pieces.iter().map(|hash| blobs.need(hash)).collect::<Result<Vec<_>>>().ok()?;
        Program::from_bytes(&all.concat()).ok()
    }

    fn report(&self, reason: Reason, doing: Doing, end: super::worker::End, busy: Duration) {
        let journal = lock(&self.journal);
        let report = journal.post_mortem(reason, doing, end, busy, &|pieces| self.program(pieces));
        let seq = journal.done();
        drop(journal);
        log::warn!("{}", report.summary);
        let _ = self.send(seq, Reply::PostMortem(report));
        self.link.finish();
    }

    fn send(&self, seq: u64, reply: Reply) -> io::Result<()> {
        self.link.send(wire::encode(&ToClient { seq, reply: Some(reply) }))
    }
}

/// The side towards the client.
struct Front {
    shared: Arc<Shared>,
    socket: Socket,
    settings: Settings,
    stop: Arc<AtomicBool>,
    /// The number of the last request.
    last: u64,
    /// When the client last sent something, and when the watch last looked.
    heard: Instant,
    looked: Instant,
    /// The request that runs with the turn it is at, and since when that has been seen.
    doing: ((u64, u64), Instant),
    /// The request to give up, and when its process ends.
    cancel: Option<(u64, Instant)>,
}

impl Front {
    /// Listens until the session is over. True if it is the client that ended it.
    fn listen(&mut self) -> bool {
        while !self.shared.over.load(Ordering::Acquire) {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => {
                    self.heard = Instant::now();
                    if let Err(error) = self.receive(bytes) {
                        self.refuse(&error);
                        return false;
                    }
                }
                Ok(Message::Close(_)) => return true,
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => {
                    if let Some(error) = too_large(&error) {
                        self.refuse(&error);
                        self.socket.drain(CLOSE_GRACE);
                        return false;
                    }
                    if breaks_the_protocol(&error) {
                        log::warn!("a client broke the protocol: {error}");
                    }
                    return true;
                }
            }
            if self.looked.elapsed() >= POLL_INTERVAL {
                self.looked = Instant::now();
                self.watch();
            }
        }
        false
    }

    /// Ends the session because of what the client has sent, and tells it so.
    fn refuse(&self, error: &Error) {
        log::warn!("a client broke the protocol: {error}");
        let failed = convert::error_to_wire(error);
        // It may be gone.
        let _ = self.shared.send(0, Reply::Failed(failed));
        self.shared.link.finish();
        self.shared.end();
        self.shared.worker.kill();
    }

    /// Lets the client read what was sent last: a connection closed over unread bytes would lose it.
    fn drain(&mut self) {
        let until = Instant::now() + CLOSE_GRACE;
        while Instant::now() < until {
            match self.socket.read() {
                Ok(Message::Close(_)) => return,
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn receive(&mut self, bytes: Bytes) -> Result<()> {
        let len = bytes.len();
        let message = wire::decode_request(bytes.clone())?;
        let seq = message.seq;
        if seq <= self.last {
            return Err(Error::invalid(format!(
                "request {seq} follows request {}: numbers must rise",
                self.last
            )));
        }
        self.last = seq;
        match message.request {
            Some(Request::Ping(_)) => {
                self.shared.send(seq, Reply::Pong(wire::Pong {})).map_err(|e| gone_error(&e))
            }
            Some(Request::Cancel(r)) => self.cancel(&r),
            Some(Request::Hello(_)) | None => Err(Error::invalid("a second hello")),
            Some(request) => {
                let mut journal = lock(&self.shared.journal);
                journal.note(seq, len, &request);
                let (bytes_under_way, count) = journal.under_way;
                drop(journal);
                if bytes_under_way > WINDOW + MAX_MESSAGE as u64 || count > WINDOW_COUNT + 1 {
                    return Err(Error::invalid("the client sent more than the window allows"));
                }
                // With nothing else under way the process waits, and so short a message fits its stream.
                if count > 1 || len > DIRECT || !self.shared.feed_now(seq, &bytes) {
                    lock(&self.shared.queue).push_back((seq, bytes));
                    self.shared.queued.notify_one();
                }
                Ok(())
            }
        }
    }

    fn cancel(&mut self, r: &wire::Cancel) -> Result<()> {
        let mut queue = lock(&self.shared.queue);
        let at = queue.iter().position(|(seq, _)| *seq == r.request);
        if let Some(at) = at {
            queue.remove(at);
            drop(queue);
            let error = Error::new(ErrorKind::Interrupted, "the request was given up before it started");
            let failed = Reply::Failed(convert::error_to_wire(&error));
            return self.shared.send(r.request, failed).map_err(|e| gone_error(&e));
        }
        drop(queue);
        if lock(&self.shared.journal).done() < r.request {
            self.cancel = Some((r.request, Instant::now() + Duration::from_millis(r.grace_ms)));
        }
        Ok(())
    }

    /// Ends the process if it must not go on.
    fn watch(&mut self) {
        let Doing { request, turn, .. } = recorder::last(&self.shared.recorder).unwrap_or_default();
        if (request, turn) != self.doing.0 {
            self.doing = ((request, turn), Instant::now());
        }
        let busy = self.doing.1.elapsed();
        let done = lock(&self.shared.journal).done();
        self.cancel = self.cancel.filter(|(request, _)| *request > done);
        let reason = if self.stop.load(Ordering::Acquire) {
            Reason::Shutdown
        } else if request > 0 && busy > self.settings.deadline {
            Reason::Deadline
        } else if self.cancel.is_some_and(|(_, until)| Instant::now() >= until) {
            Reason::Cancelled
        } else if request == 0 && self.heard.elapsed() > self.settings.idle {
            Reason::Idle
        } else {
            return;
        };
        lock(&self.shared.reason).get_or_insert((reason, busy));
        self.shared.worker.kill();
        if let Worker::Thread = self.shared.worker {
            // The thread cannot be ended: the session ends without it.
            if self.shared.end() {
                let doing = recorder::last(&self.shared.recorder).unwrap_or_default();
                self.shared.report(reason, doing, super::worker::End::default(), busy);
            }
        }
    }
}

/// Whether a client sent what it must not. One that has just vanished did not.
fn breaks_the_protocol(error: &tungstenite::Error) -> bool {
    use tungstenite::error::{Error, ProtocolError};
    match error {
        Error::Protocol(broken) => !matches!(broken, ProtocolError::ResetWithoutClosingHandshake),
        other => matches!(other, Error::Capacity(_)),
    }
}

fn gone_error(error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the client is gone: {error}"))
}
