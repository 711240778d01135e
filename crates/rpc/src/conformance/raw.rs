//! A client that sends what it is told to.
//!
//! It keeps numbers and nothing else: no window, no handles, no retries. Rules use it to send what a proper client
//! would not.

use crate::Address;
use crate::client::{connect, token, wait_ms};
use crate::net::{Socket, is_timeout};
use crate::wire::limits::VERSION;
use crate::wire::{self, Hello, Reply, Request, ToAgent, Welcome};
use bytes::Bytes;
use std::time::{Duration, Instant};
use tapml_graph::Error;
use tungstenite::Message;

/// How long an agent may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// How long after a refusal for want of a place an agent is asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Whether an agent has no place for a session at the moment.
fn is_full(failed: &wire::Failed) -> bool {
    failed.kind() == wire::ErrorKind::Unavailable && failed.message.contains("sessions")
}

/// Why a rule was not kept, or could not be checked.
///
/// Errors of a connection count as failures of the rule at hand.
pub(super) enum Problem {
    /// What was expected, and what was found.
    Failed(String),
    /// Why it could not be checked.
    Skipped(String),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem::Failed(error.to_string())
    }
}

/// The end of a rule's check or of a part of it.
pub(super) type Check<T = ()> = std::result::Result<T, Problem>;

/// A rule that is not kept.
pub(super) fn fail<T>(text: impl Into<String>) -> Check<T> {
    Err(Problem::Failed(text.into()))
}

/// A rule that does not concern this agent.
pub(super) fn skip<T>(reason: impl Into<String>) -> Check<T> {
    Err(Problem::Skipped(reason.into()))
}

/// A connection without the manners of a client.
pub(super) struct Raw {
    /// The connection itself, for rules that write frames.
    pub socket: Socket,
    /// The number of the last request.
    seq: u64,
}

/// The hello that opens this address.
pub(super) fn hello(address: &Address) -> Check<Hello> {
    Ok(Hello {
        version_min: VERSION,
        version_max: VERSION,
        client: "tapml device check".into(),
        token: token(address)?,
        target: address.target.clone(),
        wait_ms: wait_ms(address),
        ..Hello::default()
    })
}

impl Raw {
    /// Connects, and says nothing.
    pub fn connect(address: &Address) -> Check<Raw> {
        Ok(Raw { socket: connect::connect(address)?, seq: 0 })
    }

    /// Connects, says this hello, and gives the answer.
    pub fn greet(address: &Address, hello: Hello) -> Check<(Raw, Reply)> {
        let mut raw = Raw::connect(address)?;
        let seq = raw.send(Request::Hello(hello))?;
        let reply = raw.answer(seq)?;
        Ok((raw, reply))
    }

    /// An open session with a device.
    ///
    /// An agent may still be ending the sessions of rules before this one. So a refusal for want of a place is waited out, as long as the
    /// address says.
    pub fn open(address: &Address) -> Check<(Raw, Welcome)> {
        let last = Instant::now() + Duration::from_millis(wait_ms(address));
        loop {
            match Raw::greet(address, hello(address)?)? {
                (raw, Reply::Welcome(welcome)) => return Ok((raw, welcome)),
                (_, Reply::Failed(failed)) if is_full(&failed) && Instant::now() < last => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                (_, other) => {
                    return fail(format!("a hello: expected a welcome, found {}", other.words()));
                }
            }
        }
    }

    /// An open session with a device that executes commands.
    pub fn device(address: &Address) -> Check<(Raw, Welcome)> {
        let (raw, welcome) = Raw::open(address)?;
        if welcome.device.is_some() { Ok((raw, welcome)) } else { skip("it runs operators, no commands") }
    }

    /// As [`Raw::device`], with an agent that tells this capability.
    pub fn capable(address: &Address, what: &str) -> Check<(Raw, Welcome)> {
        let (raw, welcome) = Raw::device(address)?;
        if !welcome.capabilities.iter().any(|capability| capability == what) {
            return skip(format!("it does not tell the capability `{what}`"));
        }
        Ok((raw, welcome))
    }

    /// Sends a request with the next number, which it returns.
    ///
    /// # Errors
    /// If the connection is closed. An answer is not awaited.
    pub fn send(&mut self, request: Request) -> Check<u64> {
        self.seq += 1;
        self.send_as(self.seq, request)?;
        Ok(self.seq)
    }

    /// Sends a request with this number.
    pub fn send_as(&mut self, seq: u64, request: Request) -> Check {
        self.bytes(wire::encode(&ToAgent { seq, request: Some(request) }))
    }

    /// Sends a binary message.
    pub fn bytes(&mut self, bytes: Bytes) -> Check {
        let sent = self.socket.link().send(bytes);
        sent.map_err(|e| Problem::Failed(format!("the agent takes no message: {e}")))
    }

    /// The next message, or how the connection ended.
    ///
    /// # Errors
    /// If neither comes within [`ANSWER`], or a message is not well-formed.
    pub fn next(&mut self) -> Check<std::result::Result<(u64, Reply), String>> {
        // The socket's own timeout is shorter: it only ends a single look.
        let until = Instant::now() + ANSWER;
        while Instant::now() < until {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => {
                    let message = wire::decode_reply(bytes)?;
                    let reply = message.reply.ok_or_else(|| Error::invalid("an empty message"))?;
                    return Ok(Ok((message.seq, reply)));
                }
                Ok(Message::Close(_)) => return Ok(Err("the agent closed the connection".into())),
                // Texts and control frames are no messages of the wire.
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        fail(format!("expected a message or the connection's end, found nothing for {} s", ANSWER.as_secs()))
    }

    /// The answer to this request. News are passed over.
    pub fn answer(&mut self, seq: u64) -> Check<Reply> {
        loop {
            match self.next()? {
                // Credit may name the same request, and is no answer.
                Ok((of, reply)) if of == seq && !matches!(reply, Reply::Credit(_)) => return Ok(reply),
                Ok((of, reply @ (Reply::Failed(_) | Reply::PostMortem(_)))) => {
                    return fail(format!(
                        "expected an answer to request {seq}, found {} for {of}",
                        reply.words()
                    ));
                }
                // Credit for this request, or news of earlier ones.
                Ok((of, _)) if of <= seq => {}
                Ok((of, reply)) => {
                    return fail(format!(
                        "expected an answer to request {seq}, found {} for {of}",
                        reply.words()
                    ));
                }
                Err(end) => return fail(format!("expected an answer to request {seq}, found: {end}")),
            }
        }
    }

    /// Sends a request and gives its answer.
    pub fn ask(&mut self, request: Request) -> Check<Reply> {
        let seq = self.send(request)?;
        self.answer(seq)
    }

    /// Asks for something that must be refused with this kind.
    pub fn expect_refusal(&mut self, what: &str, kind: wire::ErrorKind, request: Request) -> Check {
        match self.ask(request)? {
            Reply::Failed(failed) if failed.kind() == kind => Ok(()),
            other => fail(format!("{what}: expected a failure of kind {kind:?}, found {}", other.words())),
        }
    }

    /// Waits, which must succeed.
    pub fn done(&mut self, what: &str) -> Check {
        match self.ask(Request::Wait(wire::Wait {}))? {
            Reply::Done(_) => Ok(()),
            other => fail(format!("a wait after {what}: expected done, found {}", other.words())),
        }
    }

    /// Reads bytes with the pieces that they came in.
    pub fn pieces(&mut self, request: Request) -> Check<Vec<Bytes>> {
        let seq = self.send(request)?;
        let mut pieces = Vec::new();
        loop {
            match self.answer(seq)? {
                Reply::Data(data) => {
                    pieces.push(data.data);
                    if data.last {
                        return Ok(pieces);
                    }
                }
                other => return fail(format!("a read: expected data, found {}", other.words())),
            }
        }
    }

    /// The connection must end, after a failure or without.
    pub fn ends(&mut self, what: &str) -> Check {
        // Messages that were under way may still arrive.
        for _ in 0..16 {
            match self.next()? {
                Err(_) => return Ok(()),
                Ok((_, Reply::Failed(_) | Reply::PostMortem(_) | Reply::Credit(_))) => {}
                Ok((_, other)) => {
                    return fail(format!("{what}: expected the connection's end, found {}", other.words()));
                }
            }
        }
        fail(format!("{what}: expected the connection's end, found ever more messages"))
    }
}
