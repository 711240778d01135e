//! A connection to an agent: sends requests without waiting, waits for replies, and knows when the device is gone.

use super::post_mortem;
use crate::net::{Socket, is_timeout};
use crate::wire::limits::{WINDOW, WINDOW_COUNT};
use crate::wire::{self, Names, Note, Reason, Reply, Request, ToAgent, convert};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// Requests told when the connection is lost.
const RECENT: usize = 24;

/// How long a request may go on that the user gave up, milliseconds.
const GRACE_MS: u64 = 2000;

/// Most of the time between two looks that counts as waiting. In the rest this process did not run: a laptop's lid was closed,
/// or the user had stopped it, and what the agent has said meanwhile has yet to be read.
const LOOK: Duration = Duration::from_secs(1);

/// How a wait for the agent stands.
struct Wait {
    /// How long nothing has come while this process ran.
    silent: Duration,
    looked: Instant,
    pinged: Instant,
    /// Whether the agent has been told that the user has given up.
    given_up: bool,
}

impl Wait {
    fn new() -> Wait {
        let now = Instant::now();
        Wait { silent: Duration::ZERO, looked: now, pinged: now, given_up: false }
    }

    fn note_heard(&mut self) {
        (self.silent, self.looked) = (Duration::ZERO, Instant::now());
    }

    fn look(&mut self) {
        self.silent += self.looked.elapsed().min(LOOK);
        self.looked = Instant::now();
    }
}

/// See the module.
pub struct Connection {
    socket: Socket,
    place: String,
    seq: u64,
    window: u64,
    /// Messages under way, with their lengths.
    unfinished: VecDeque<(u64, usize)>,
    under_way: u64,
    recent: VecDeque<(u64, Note)>,
    /// None are remembered: the agent's report has them.
    names: Names,
    /// Why the device is gone.
    lost: Option<Error>,
    /// Whether it is gone because the way to it is: nothing says that it has failed itself.
    cut: bool,
    /// Set by the user to give up the request that is waited for.
    stop: Arc<AtomicBool>,
    /// How long the agent may show no sign of life while it is waited for.
    answer_within: Duration,
    /// The place in a hub's queue that the user has been told.
    reported: Option<wire::Queued>,
}

impl Connection {
    /// A connection on which nothing has been said.
    pub fn new(socket: Socket, place: String, answer_within: Duration) -> Connection {
        Connection {
            socket,
            place,
            seq: 0,
            window: WINDOW,
            unfinished: VecDeque::new(),
            under_way: 0,
            recent: VecDeque::new(),
            names: Names::default(),
            lost: None,
            cut: false,
            stop: Arc::default(),
            answer_within,
            reported: None,
        }
    }

    /// Where the device is, for people: the address, or what a hub has leased.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The agent's own window.
    pub fn set_window(&mut self, bytes: u64) {
        self.window = bytes.min(WINDOW);
    }

    /// How long the agent may show no sign of life from here on, and three times of which it may take nothing of what is sent.
    pub fn set_answer_within(&mut self, time: Duration) {
        self.answer_within = time;
        self.socket.link().peer().expect_within(3 * time);
    }

    /// What the user sets to give up.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Lets the user give up by this flag.
    pub fn set_stop_flag(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// Whether only the way to the device was lost.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Sends a request; `flush` if the agent shall see it now.
    pub fn send(&mut self, request: Request, flush: bool) -> Result<u64> {
        self.expect_alive()?;
        self.seq += 1;
        let seq = self.seq;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, request.note(&self.names)));
        let counted = !matches!(request, Request::Ping(_) | Request::Cancel(_));
        let bytes = wire::encode(&ToAgent { seq, request: Some(request) });
        let len = bytes.len();
        while counted
            && (self.under_way + len as u64 > self.window || self.unfinished.len() >= WINDOW_COUNT)
            && !self.unfinished.is_empty()
        {
            self.write(None)?;
            self.receive()?;
        }
        if counted {
            self.unfinished.push_back((seq, len));
            self.under_way += len as u64;
        }
        self.socket.link().write_later(Message::Binary(bytes)).map_err(|e| self.broken_error(&e))?;
        if flush {
            self.write(None)?;
        }
        Ok(seq)
    }

    /// Sends what is still here.
    fn write(&mut self, message: Option<Message>) -> Result<()> {
        let written = match message {
            Some(message) => self.socket.link().write(message),
            None => self.socket.link().flush(),
        };
        written.map_err(|e| self.broken_error(&e))
    }

    /// The next reply to this request. A failure that the agent tells is the error.
    pub fn wait(&mut self, seq: u64) -> Result<Reply> {
        self.expect_alive()?;
        self.write(None)?;
        loop {
            match self.receive()? {
                (of, Reply::Failed(failed)) if of == seq || of == 0 => {
                    let error = convert::error_from_wire(failed);
                    // It is no answer to a request: a hub tells that its agent has gone, or the protocol was broken.
                    if of == 0 && error.kind() == ErrorKind::DeviceLost {
                        return Err(self.cut(error.message()));
                    }
                    if of == 0 || error.kind() == ErrorKind::DeviceLost {
                        self.lost = Some(as_lost(&error));
                    }
                    return Err(error);
                }
                (of, reply) if of == seq && !matches!(reply, Reply::Credit(_)) => return Ok(reply),
                _ => {}
            }
        }
    }

    /// The next message of the agent that is no pong, whatever it is about.
    fn receive(&mut self) -> Result<(u64, Reply)> {
        let mut wait = Wait::new();
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => {
                    let message = wire::decode_reply(bytes).map_err(|e| self.lose(e.message()))?;
                    wait.note_heard();
                    match message.reply {
                        Some(Reply::Pong(_)) | None => {}
                        Some(Reply::Queued(queued)) => self.report_queue(&queued),
                        Some(Reply::Leased(leased)) => self.place = format!("hub/{}", leased.device),
                        Some(Reply::PostMortem(report)) => return Err(self.ended_error(report)),
                        Some(reply) => {
                            self.finish(message.seq);
                            return Ok((message.seq, reply));
                        }
                    }
                }
                Ok(Message::Close(_)) => return Err(self.cut("the agent closed the connection")),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {
                    self.poll(&mut wait)?;
                }
                Err(error) => return Err(self.broken_error(&error)),
            }
        }
    }

    /// Says once per place how long the queue at a hub is.
    fn report_queue(&mut self, queued: &wire::Queued) {
        let same = |told: &wire::Queued| (told.place, &told.trouble) == (queued.place, &queued.trouble);
        if !self.reported.as_ref().is_some_and(same) {
            self.reported = Some(queued.clone());
            match queued.devices {
                _ if !queued.trouble.is_empty() => {
                    log::warn!("{}: waiting: {}", self.place, queued.trouble.escape_debug());
                }
                0 => log::warn!("{}: no device that suits is there; waiting for one to come", self.place),
                n => {
                    log::warn!("{}: waiting for a device: place {} for {n} of them", self.place, queued.place)
                }
            }
        }
    }

    /// While waiting: is the agent alive, does the user still want the answer?
    fn poll(&mut self, wait: &mut Wait) -> Result<()> {
        wait.look();
        if wait.silent > self.answer_within {
            let text = format!("the agent gave no sign of life for {} s", wait.silent.as_secs());
            return Err(self.cut(&text));
        }
        if self.stop.load(Ordering::Acquire) && !wait.given_up {
            wait.given_up = true;
            let request = self.unfinished.back().map_or(self.seq, |(seq, _)| *seq);
            return self.send_aside(Request::Cancel(wire::Cancel { request, grace_ms: GRACE_MS }));
        }
        if wait.pinged.elapsed() > self.answer_within / 4 {
            wait.pinged = Instant::now();
            self.send_aside(Request::Ping(wire::Ping {}))?;
        }
        Ok(())
    }

    /// Sends a request beside the others.
    fn send_aside(&mut self, request: Request) -> Result<()> {
        self.seq += 1;
        let bytes = wire::encode(&ToAgent { seq: self.seq, request: Some(request) });
        self.write(Some(Message::Binary(bytes)))
    }

    fn finish(&mut self, seq: u64) {
        while self.unfinished.front().is_some_and(|(front, _)| *front <= seq) {
            self.under_way -= self.unfinished.pop_front().map_or(0, |(_, len)| len as u64);
        }
    }

    fn expect_alive(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    fn broken_error(&mut self, error: &tungstenite::Error) -> Error {
        // A write fails when the agent has closed: what it said last tells why.
        if let Some(error) = self.last_words() {
            return error;
        }
        let text = match error {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                "the connection is closed".into()
            }
            error if is_timeout(error) => {
                let time = (3 * self.answer_within).as_secs();
                format!("the agent has taken nothing of what was sent to it for {time} s")
            }
            other => format!("the connection broke: {other}"),
        };
        self.cut(&text)
    }

    fn last_words(&mut self) -> Option<Error> {
        // A read sends first what could not be sent: nobody waits for that any more.
        self.socket.link().peer().expect_within(Duration::ZERO);
        for _ in 0..WINDOW_COUNT {
            let Ok(Message::Binary(bytes)) = self.socket.read() else { return None };
            let message = wire::decode_reply(bytes).ok()?;
            let error = match message.reply {
                Some(Reply::PostMortem(report)) => return Some(self.ended_error(report)),
                Some(Reply::Failed(failed)) => convert::error_from_wire(failed),
                _ => continue,
            };
            // As in `wait`: a hub's agent has gone.
            self.cut = message.seq == 0 && error.kind() == ErrorKind::DeviceLost;
            let error = as_lost(&error);
            self.lost = Some(error.clone());
            return Some(error);
        }
        None
    }

    /// The session has ended, and the agent tells how; the error that tells so.
    fn ended_error(&mut self, report: wire::PostMortem) -> Error {
        // Both say nothing against the device: the client was away, or the agent is started again.
        self.cut = matches!(report.reason(), Reason::Idle | Reason::Shutdown);
        let error = post_mortem::error(&self.place, report);
        self.lost = Some(error.clone());
        error
    }

    /// As [`Connection::lose`], where it is the way to the device that is lost.
    fn cut(&mut self, why: &str) -> Error {
        self.cut = true;
        // Who looks for faults of devices shall not take it for one.
        let error = self.lose(why).with_detail("connection", "lost");
        self.lost = Some(error.clone());
        error
    }

    /// Gives the device up, so that the agent can end the session; the error that tells so.
    pub fn lose(&mut self, why: &str) -> Error {
        let told = self.recent.iter().map(|(seq, note)| format!("{seq}: {}", note.describe(&self.names, 0)));
        let recent = told.collect::<Vec<_>>().join("\n");
        let error = Error::new(ErrorKind::DeviceLost, format!("the device at {} is lost: {why}", self.place))
            .with_detail("recent", recent)
            .with_hint("what was on the device is gone; run the command again");
        self.lost = Some(error.clone());
        self.socket.link().close();
        error
    }

    /// Says goodbye.
    pub fn close(&mut self) {
        if self.lost.is_none() {
            // The agent notices in any case.
            self.socket.link().finish();
        }
    }
}

/// An error as one of a lost device.
fn as_lost(error: &Error) -> Error {
    let lost = Error::new(ErrorKind::DeviceLost, error.to_string());
    error.details().iter().fold(lost, |e, (name, value)| e.with_detail(name, value))
}
