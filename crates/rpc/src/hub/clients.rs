//! A client's connection: hello, a place in the queue, a device, and then the messages of the session.

mod queue;
mod relay;

pub(super) use relay::{Arrival, Pending};

use super::registry::{Lease, Want};
use super::{House, TICK, gone, is_tick, lock};
use crate::agent::accept::{LINGER, hello};
use crate::agent::gate::{Place, Waiting};
use crate::agent::link::{Link, Reader};
use crate::wire::limits::{MAX_MESSAGE, VERSION, WINDOW};
use crate::wire::{self, Hello, Reply, ToClient, convert};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::{Message, WebSocket};

/// A client that has said hello.
struct Guest<'a> {
    house: &'a House,
    socket: WebSocket<Reader>,
    link: Arc<Link>,
    seq: u64,
    hello: Hello,
    /// Its number in the queue.
    id: u64,
    since: Instant,
    heard: Instant,
    /// When it was last told its place, and which.
    told: Option<(Instant, wire::Queued)>,
    /// Why devices were not had.
    refusals: Vec<String>,
    /// The lease's row, where hubs share a table.
    claim: Option<String>,
}

impl House {
    /// Serves a client until it leaves.
    pub(super) fn client(
        &self,
        mut socket: WebSocket<Reader>,
        link: Arc<Link>,
        from: SocketAddr,
        waiting: Waiting,
        forwarded: bool,
    ) -> Result<()> {
        let outcome = self.let_in_client(&mut socket, from);
        drop(waiting);
        match outcome {
            Ok((seq, hello, _place)) => self.guest(socket, link, seq, hello, forwarded),
            Err(error) => {
                log::warn!("client at {from} is not let in: {error}");
                refuse(&link, 1, &error);
                socket.get_mut().drain(LINGER);
                Ok(())
            }
        }
    }

    fn let_in_client(&self, socket: &mut WebSocket<Reader>, from: SocketAddr) -> Result<(u64, Hello, Place)> {
        let (seq, hello) = hello(socket)?;
        let place = self.gate.enter(from.ip(), &hello.token)?;
        Ok((seq, hello, place))
    }

    fn guest(
        &self,
        mut socket: WebSocket<Reader>,
        link: Arc<Link>,
        seq: u64,
        mut hello: Hello,
        forwarded: bool,
    ) -> Result<()> {
        socket.get_mut().let_in(TICK).map_err(|e| gone(&e))?;
        hello.token = String::new();
        let name = hello.target.split('?').next().unwrap_or_default().to_string();
        let id = match hello.target.is_empty() || forwarded {
            true => 0,
            false => self.enqueue(&name, hello.priority),
        };
        let now = Instant::now();
        let mut guest = Guest {
            house: self,
            socket,
            link,
            seq,
            hello,
            id,
            since: now,
            heard: now,
            told: None,
            refusals: Vec::new(),
            claim: None,
        };
        let served = match (forwarded, id) {
            (true, _) => guest.forwarded(&name),
            (false, 0) => guest.list(),
            (false, _) => guest.session(),
        };
        guest.dequeue();
        guest.release();
        if let Err(error) = &served {
            refuse(&guest.link, seq, error);
        }
        guest.linger();
        served
    }
}

impl Guest<'_> {
    /// Answers what devices there are.
    fn list(&mut self) -> Result<()> {
        let welcome = wire::Welcome {
            version: VERSION,
            agent: concat!("tapml hub ", env!("CARGO_PKG_VERSION")).into(),
            devices: self.house.known().list(),
            limits: Some(wire::SessionLimits {
                max_message: MAX_MESSAGE as u64,
                window: WINDOW,
                ..Default::default()
            }),
            ..Default::default()
        };
        self.say(self.seq, Reply::Welcome(welcome))?;
        self.link.finish();
        Ok(())
    }

    /// Waits for a device, and copies messages until one side leaves.
    fn session(&mut self) -> Result<()> {
        loop {
            let lease = self.queue()?;
            let over = Arc::new(AtomicBool::new(false));
            match self.through(&lease, &over) {
                Ok(through) => {
                    self.dequeue();
                    return self.join(&lease, through, &over);
                }
                Err(error) => {
                    log::warn!("{}: {error}", lease.place);
                    self.release();
                    let mut registry = lock(&self.house.registry);
                    if error.detail(relay::BUSY).is_some() {
                        registry.rest(&lease.place.agent);
                        continue;
                    }
                    // An agent that has left may come back.
                    if registry.has(&lease.home) {
                        registry.exclude(self.id, &lease.place);
                        self.refusals.push(format!("{}: {error}", lease.place));
                    }
                }
            }
        }
    }

    /// Serves a client of another hub, which has leased the device for it.
    fn forwarded(&mut self, name: &str) -> Result<()> {
        let Want::Exactly(place) = Want::parse(name) else {
            return Err(Error::invalid("another hub asks for no device of an agent"));
        };
        let lease = lock(&self.house.registry).here(&place);
        let lease = lease
            .ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("{place} is not here any more")))?;
        let over = Arc::new(AtomicBool::new(false));
        let through = self.through(&lease, &over)?;
        self.join(&lease, through, &over)
    }

    /// The device's name at its agent, with the client's options.
    fn target(&self, lease: &Lease) -> String {
        match self.hello.target.split_once('?') {
            Some((_, options)) => format!("{}?{options}", lease.place.device),
            None => lease.place.device.clone(),
        }
    }

    fn say(&self, seq: u64, reply: Reply) -> Result<()> {
        say(&self.link, seq, reply)
    }

    /// Lets the client read what was sent last.
    fn linger(&mut self) {
        let until = Instant::now() + LINGER;
        while Instant::now() < until {
            match self.socket.read() {
                Ok(Message::Close(_)) => return,
                Ok(_) => {}
                Err(error) if is_tick(&error) => {}
                Err(_) => return,
            }
        }
    }
}

fn say(link: &Link, seq: u64, reply: Reply) -> Result<()> {
    link.send(&wire::encode(&ToClient { seq, reply: Some(reply) })).map_err(|e| gone(&e))
}

fn refuse(link: &Link, seq: u64, error: &Error) {
    // A client that is gone needs no answer.
    let _ = say(link, seq, Reply::Failed(convert::error_to_wire(error)));
    link.finish();
}

/// A name that nobody guesses.
pub(super) fn random_id() -> Result<String> {
    let mut random = [0u8; 16];
    getrandom::fill(&mut random).map_err(|e| {
        Error::new(ErrorKind::Unavailable, format!("the system gives no random numbers: {e}"))
    })?;
    Ok(random.iter().map(|b| format!("{b:02x}")).collect())
}
