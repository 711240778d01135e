//! A client's connection: hello, a place in the queue, a device, and then the messages of the session.

mod queue;
mod tunnel;

pub(super) use tunnel::Tunnel;

use super::device_request::DeviceRequest;
use super::registry::Destination;
use super::state::{BUSY, HubState, POLL_INTERVAL, gone_error, lock};
use crate::agent::accept::{CLOSE_GRACE, LetIn, hello};
use crate::net::gate::Place;
use crate::net::upgrade::OpenSocket;
use crate::net::{Link, Socket, is_timeout};
use crate::wire::limits::{MAX_MESSAGE, VERSION, WINDOW};
use crate::wire::{self, Hello, Reply, ToClient, convert};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// A client that has said hello.
pub(super) struct HubClient<'a> {
    pub(super) hub: &'a HubState,
    pub(super) socket: Socket,
    pub(super) link: Arc<Link>,
    pub(super) seq: u64,
    pub(super) hello: Hello,
    /// Its number in the queue; `None` if it asks for no device of this hub's.
    pub(super) id: Option<u64>,
    since: Instant,
    /// When it was last told its place, and which.
    reported: Option<(Instant, wire::Queued)>,
    /// Why devices were not had.
    refusals: Vec<String>,
}

impl HubState {
    /// Serves a client until it leaves.
    pub(super) fn client(&self, opened: OpenSocket, forwarded: bool) -> Result<()> {
        let OpenSocket { mut socket, from, place: waiting } = opened;
        let link = socket.link().clone();
        match self.let_in_client(&mut socket, from) {
            Ok(LetIn { seq, hello, place }) => {
                // Who only asks what there is counts among those who wait to be let in until they leave.
                let waiting = place.is_none().then_some(waiting);
                let served = self.serve_client(socket, link, seq, hello, forwarded);
                drop((place, waiting));
                served
            }
            Err(error) => {
                log::warn!("client at {from} is not let in: {error}");
                refuse(&link, 1, &error);
                socket.drain(CLOSE_GRACE);
                Ok(())
            }
        }
    }

    /// The hello of a client whose version and token are right, and its place. A client that names no device needs none: a hub
    /// whose places are taken still tells by whom.
    fn let_in_client(&self, socket: &mut Socket, from: SocketAddr) -> Result<LetIn<Option<Place>>> {
        let (seq, hello) = hello(socket)?;
        let place = if hello.target.is_empty() {
            self.gate.check_token(from.ip(), &hello.token)?;
            None
        } else {
            Some(self.gate.enter(from.ip(), &hello.token)?)
        };
        Ok(LetIn { seq, hello, place })
    }

    fn serve_client(
        &self,
        mut socket: Socket,
        link: Arc<Link>,
        seq: u64,
        mut hello: Hello,
        forwarded: bool,
    ) -> Result<()> {
        socket.let_in(POLL_INTERVAL);
        hello.token = String::new();
        let name = hello.target.split('?').next().unwrap_or_default().to_string();
        let waits = !hello.target.is_empty() && !forwarded;
        let id = waits.then(|| self.enqueue(&name, hello.priority, &link));
        let (since, reported, refusals) = (Instant::now(), None, Vec::new());
        let mut client = HubClient { hub: self, socket, link, seq, hello, id, since, reported, refusals };
        let served = match (forwarded, id) {
            (true, _) => client.serve_forwarded(&name),
            (false, None) => client.list(),
            (false, Some(id)) => client.session(id),
        };
        if let Some(id) = id {
            self.leave(id);
        }
        if let Err(error) = &served {
            refuse(&client.link, seq, error);
        }
        client.drain();
        served
    }
}

impl HubClient<'_> {
    /// Answers what devices there are.
    fn list(&mut self) -> Result<()> {
        let welcome = wire::Welcome {
            version: VERSION,
            agent: concat!("tapml hub ", env!("CARGO_PKG_VERSION")).into(),
            devices: self.hub.pool().list(),
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
    fn session(&mut self, id: u64) -> Result<()> {
        loop {
            let target = self.queue(id)?;
            let over = Arc::new(AtomicBool::new(false));
            match self.open_tunnel(&target, &over) {
                Ok(tunnel) => {
                    self.hub.stop_waiting(id);
                    return self.relay(&target, tunnel, &over);
                }
                Err(error) => {
                    log::warn!("{}: {error}", target.place);
                    self.hub.give_back(id);
                    let mut pool = lock(&self.hub.pool);
                    if error.detail(BUSY).is_some() {
                        pool.leases.rest(&target.place.agent, Instant::now());
                        continue;
                    }
                    // An agent that has left may come back.
                    if pool.registry().has(&target.location) {
                        pool.leases.exclude(id, &target.place);
                        self.refusals.push(format!("{}: {error}", target.place));
                    }
                }
            }
        }
    }

    /// Serves a client of another hub, which has leased the device for it.
    fn serve_forwarded(&mut self, name: &str) -> Result<()> {
        let DeviceRequest::Exactly(place) = DeviceRequest::parse(name) else {
            return Err(Error::invalid("another hub asks for no device of an agent"));
        };
        let target = lock(&self.hub.pool).registry().find_local(&place);
        let target = target
            .ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("{place} is not here any more")))?;
        let over = Arc::new(AtomicBool::new(false));
        let tunnel = self.open_tunnel(&target, &over)?;
        self.relay(&target, tunnel, &over)
    }

    pub(super) fn say(&self, seq: u64, reply: Reply) -> Result<()> {
        say(&self.link, seq, reply)
    }

    /// Lets the client read what was sent last.
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
}

/// The device's name at its agent, with the client's options.
pub(super) fn target_at_agent(hello: &Hello, target: &Destination) -> String {
    match hello.target.split_once('?') {
        Some((_, options)) => format!("{}?{options}", target.place.device),
        None => target.place.device.clone(),
    }
}

fn say(link: &Link, seq: u64, reply: Reply) -> Result<()> {
    link.send(wire::encode(&ToClient { seq, reply: Some(reply) })).map_err(|e| gone_error(&e))
}

pub(super) fn refuse(link: &Link, seq: u64, error: &Error) {
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
