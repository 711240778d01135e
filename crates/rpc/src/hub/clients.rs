//! A client's connection: hello, a place in the queue, a device, and then the messages of the session.

use super::agents::tell;
use super::registry::{Home, Lease, Want};
use super::{House, TICK, gone, is_tick, lock};
use crate::agent::accept::hello;
use crate::agent::dial;
use crate::agent::gate::Place;
use crate::agent::link::{Link, Reader};
use crate::client::Address;
use crate::wire::limits::{BEAT, COMING, MAX_MESSAGE, PROTOCOL, SILENCE, VERSION, WINDOW};
use crate::wire::{self, Hello, HubWord, Reply, Request, ToAgent, ToClient, convert};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::{Message, WebSocket};

/// How long a client waits for a device that no agent offers, unless it says otherwise: agents that have lost their hub
/// come back within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take to read the last message.
const LINGER: Duration = Duration::from_secs(2);

/// A session whose agent has yet to come.
pub(super) struct Pending {
    /// The agent's connection.
    pub connection: u64,
    /// Tells the client's thread.
    pub tell: mpsc::Sender<Arrival>,
    client: Arc<Link>,
    over: Arc<AtomicBool>,
}

/// An agent's answer to an Open.
pub(super) enum Arrival {
    /// It has dialled the session's connection.
    Here(Arc<Link>),
    /// It does not want to, and why.
    Refused(String),
}

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

/// Where the messages of a session go, and where they come from if that is another hub's connection.
struct Through {
    agent: Arc<Link>,
    peer: Option<WebSocket<Reader>>,
}

impl House {
    /// Serves a client until it leaves.
    pub(super) fn client(
        &self,
        mut socket: WebSocket<Reader>,
        link: Arc<Link>,
        from: SocketAddr,
        waiting: Place,
        forwarded: bool,
    ) -> Result<()> {
        let outcome = self.let_in_client(&mut socket, from);
        drop(waiting);
        match outcome {
            Ok((seq, hello, _place)) => self.guest(socket, link, seq, hello, forwarded),
            Err(error) => {
                log::warn!("client at {from} is not let in: {error}");
                refuse(&link, 1, &error);
                while socket.read().is_ok_and(|m| !m.is_close()) {}
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

    fn enqueue(&self, name: &str, priority: i32) -> u64 {
        let mut registry = lock(&self.registry);
        let id = registry.enqueue(Want::parse(name), priority);
        let since = registry.since(id);
        drop(registry);
        if let Some(shared) = &self.shared {
            shared.put_waiter(id, name, priority, since);
        }
        id
    }

    /// Serves the connection that an agent has dialled for a session: copies what it says to the client.
    pub(super) fn session(
        &self,
        mut socket: WebSocket<Reader>,
        link: Arc<Link>,
        pending: Pending,
    ) -> Result<()> {
        socket.get_mut().let_in(TICK).map_err(|e| gone(&e))?;
        widen(&mut socket);
        let Pending { tell, client, over, .. } = pending;
        if tell.send(Arrival::Here(link)).is_err() {
            return Err(Error::new(ErrorKind::Interrupted, "the client has given up"));
        }
        // The client's thread closes this connection when it is done with it.
        self.relay(&mut socket, &client, &over);
        Ok(())
    }

    /// Copies what an agent says to the client, which is told when the agent is lost.
    fn relay(&self, from: &mut WebSocket<Reader>, client: &Link, over: &AtomicBool) {
        let how = copy(from, client, over, self);
        if !over.swap(true, Ordering::AcqRel) {
            let text = match how {
                Ok(()) => "the agent closed the session".to_string(),
                Err(error) => format!("the session's agent is lost: {error}"),
            };
            // Not an answer to any request: whatever the client waits for, it waits in vain.
            refuse(client, 0, &Error::new(ErrorKind::DeviceLost, text));
        }
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

    /// The way to a device's agent.
    fn through(&mut self, lease: &Lease, over: &Arc<AtomicBool>) -> Result<Through> {
        match &lease.home {
            Home::Here(connection) => {
                let agent = self.open(lease, *connection, over)?;
                Ok(Through { agent, peer: None })
            }
            Home::Away(url) => self.dial(lease, url),
        }
    }

    /// Asks the hub that has the agent.
    fn dial(&self, lease: &Lease, url: &str) -> Result<Through> {
        let config = &self.house.config;
        let address = Address {
            ca: config.peers.as_ref().and_then(|peers| peers.ca.clone()),
            hub: true,
            ..Address::parse(url, &[])?
        };
        let (link, mut socket) = dial::open(&address, "forward", PROTOCOL)?;
        let target = format!("{}/{}", lease.place.agent, self.target(lease));
        let token = config.token.clone().unwrap_or_default();
        let hello = Hello { target, token, ..self.hello.clone() };
        let hello = ToAgent { seq: self.seq, request: Some(Request::Hello(hello)) };
        link.send(&wire::encode(&hello)).map_err(|e| gone(&e))?;
        loop {
            match socket.read().map_err(|e| gone(&e))? {
                Message::Binary(bytes) => match wire::decode_reply(bytes)?.reply {
                    Some(Reply::Leased(_)) => break,
                    Some(Reply::Failed(failed)) => return Err(convert::error_from_wire(failed)),
                    _ => {
                        return Err(Error::invalid("the other hub answers with something else than a lease"));
                    }
                },
                Message::Close(_) => return Err(gone(&"the other hub closed the connection")),
                _ => {}
            }
        }
        socket.get_mut().let_in(TICK).map_err(|e| gone(&e))?;
        widen(&mut socket);
        Ok(Through { agent: link, peer: Some(socket) })
    }

    /// Copies messages until one side leaves.
    fn join(&mut self, lease: &Lease, through: Through, over: &AtomicBool) -> Result<()> {
        log::info!("{} has {}", self.hello.client.escape_debug(), lease.place);
        let Through { agent, peer } = through;
        let device = wire::Leased { device: lease.place.to_string(), agent: lease.agent.clone() };
        let begun = self.say(0, Reply::Leased(device)).and_then(|()| {
            // Another hub has said hello for this client already.
            if peer.is_some() {
                return Ok(());
            }
            let hello = Hello { target: self.target(lease), ..self.hello.clone() };
            let hello = ToAgent { seq: self.seq, request: Some(Request::Hello(hello)) };
            agent.send(&wire::encode(&hello)).map_err(|e| gone(&e))
        });
        widen(&mut self.socket);
        let (house, client) = (self.house, self.link.clone());
        let how = std::thread::scope(|scope| {
            if let Some(mut peer) = peer {
                scope.spawn(move || house.relay(&mut peer, &client, over));
            }
            let how = begun.and_then(|()| copy(&mut self.socket, &agent, over, house));
            over.store(true, Ordering::Release);
            agent.finish();
            agent.close();
            how
        });
        if let Err(error) = how {
            log::info!("{}: the client is lost: {error}", lease.place);
        }
        Ok(())
    }

    /// This client waits no more.
    fn dequeue(&self) {
        lock(&self.house.registry).dequeue(self.id);
        if let (Some(shared), true) = (&self.house.shared, self.id > 0) {
            shared.remove_waiter(self.id);
        }
    }

    /// Gives the device back.
    fn release(&mut self) {
        lock(&self.house.registry).release(self.id);
        if let (Some(shared), Some(claim)) = (&self.house.shared, self.claim.take()) {
            shared.table.remove(&claim);
        }
    }

    /// Leases a device if one is free that nobody before this client can take.
    fn lease(&mut self) -> Option<Lease> {
        let lease = self.house.known().lease(self.id)?;
        let Some(shared) = &self.house.shared else { return Some(lease) };
        match shared.claim(&lease, self.id) {
            Ok(Some(key)) => {
                self.claim = Some(key);
                return Some(lease);
            }
            Ok(None) => log::debug!("{}: another hub was faster", lease.place),
            // Without the broker nobody knows who has what: the client waits.
            Err(error) => log::debug!("{}: {error}", lease.place),
        }
        lock(&self.house.registry).release(self.id);
        None
    }

    /// The device's name at its agent, with the client's options.
    fn target(&self, lease: &Lease) -> String {
        match self.hello.target.split_once('?') {
            Some((_, options)) => format!("{}?{options}", lease.place.device),
            None => lease.place.device.clone(),
        }
    }

    /// Waits until this client's turn has come.
    fn queue(&mut self) -> Result<Lease> {
        loop {
            if self.house.stopped() {
                return Err(Error::new(ErrorKind::Unavailable, "the hub is being stopped"));
            }
            if let Some(lease) = self.lease() {
                return Ok(lease);
            }
            let prospects = self.house.known().prospects(self.id);
            let waited = self.since.elapsed();
            let limit = match (self.hello.wait_ms, prospects.devices) {
                (0, 0) if !self.refusals.is_empty() => Duration::ZERO,
                (0, 0) => PATIENCE,
                (0, _) => Duration::MAX,
                (wait, _) => Duration::from_millis(wait),
            };
            if waited >= limit {
                return Err(self.in_vain(prospects.devices));
            }
            self.tell_place(wire::Queued { place: prospects.place, devices: prospects.devices })?;
            self.look()?;
        }
    }

    fn in_vain(&self, devices: u32) -> Error {
        let known: Vec<String> =
            self.house.known().list().into_iter().take(16).map(|offer| offer.name).collect();
        let asked = self.hello.target.escape_debug();
        let text = match devices {
            0 if !self.refusals.is_empty() => {
                format!("no device for `{asked}`: {}", self.refusals.join("; "))
            }
            0 => format!("no agent at the hub offers `{asked}`"),
            n => format!("none of {n} devices for `{asked}` became free in time"),
        };
        let hint = match known.as_slice() {
            [] => {
                "no agent has dialled in: `tapml device serve --hub URL`, or open the hub's page in a browser"
                    .into()
            }
            _ => format!("there are: {}", known.join(", ")),
        };
        Error::new(ErrorKind::Unavailable, text).with_hint(hint)
    }

    /// Tells the client its place if it has changed, and now and then, so that it knows the hub is there.
    fn tell_place(&mut self, queued: wire::Queued) -> Result<()> {
        if self.told.as_ref().is_some_and(|(when, told)| *told == queued && when.elapsed() < BEAT) {
            return Ok(());
        }
        self.say(0, Reply::Queued(queued.clone()))?;
        self.told = Some((Instant::now(), queued));
        self.link.ping().map_err(|e| gone(&e))
    }

    /// Looks for a tick whether the waiting client says something.
    fn look(&mut self) -> Result<()> {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => {
                self.heard = Instant::now();
                let message = wire::decode_request(bytes)?;
                match message.request {
                    Some(Request::Ping(_)) => self.say(message.seq, Reply::Pong(wire::Pong {})),
                    Some(Request::Cancel(_)) => {
                        Err(Error::new(ErrorKind::Interrupted, "given up while waiting for a device"))
                    }
                    _ => Err(Error::invalid("a request came before the welcome")),
                }
            }
            Ok(Message::Close(_)) => Err(gone(&"closed while it waited")),
            Ok(_) => {
                self.heard = Instant::now();
                Ok(())
            }
            Err(error) if is_tick(&error) => match self.heard.elapsed() > SILENCE {
                true => Err(gone(&format!("silent for {} s", SILENCE.as_secs()))),
                false => Ok(()),
            },
            Err(error) => Err(gone(&error)),
        }
    }

    /// Asks the agent to come; its connection for this session.
    fn open(&mut self, lease: &Lease, connection: u64, over: &Arc<AtomicBool>) -> Result<Arc<Link>> {
        let control = lock(&self.house.controls).get(&connection).cloned();
        let control = control.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the agent has left"))?;
        let session = random_id()?;
        let (tell_me, told) = mpsc::channel();
        let pending = Pending { connection, tell: tell_me, client: self.link.clone(), over: over.clone() };
        lock(&self.house.pending).insert(session.clone(), pending);
        let open = wire::Open { session: session.clone(), target: self.target(lease) };
        let come = tell(&control, HubWord::Open(open)).and_then(|()| self.arrival(&told, lease));
        if lock(&self.house.pending).remove(&session).is_some() {
            // It has not come, and need not any more.
            let _ = tell(&control, HubWord::Close(wire::Close { session }));
        }
        come
    }

    fn arrival(&self, told: &mpsc::Receiver<Arrival>, lease: &Lease) -> Result<Arc<Link>> {
        let until = Instant::now() + COMING;
        let unavailable = |text: String| Error::new(ErrorKind::Unavailable, text);
        loop {
            match told.recv_timeout(TICK) {
                Ok(Arrival::Here(link)) => return Ok(link),
                Ok(Arrival::Refused(reason)) => {
                    return Err(unavailable(format!("the agent refuses: {}", reason.escape_debug())));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(unavailable("the agent's connection broke".into()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if !lock(&self.house.registry).has(&lease.home) {
                return Err(unavailable("the agent has left".into()));
            }
            if Instant::now() > until || self.house.stopped() {
                return Err(unavailable(format!("the agent did not come within {} s", COMING.as_secs())));
            }
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

/// Gives what comes from one side to the other until either is done.
fn copy(from: &mut WebSocket<Reader>, to: &Link, over: &AtomicBool, house: &House) -> Result<()> {
    while !over.load(Ordering::Acquire) {
        match from.read() {
            Ok(Message::Binary(bytes)) => forward(to, &bytes)?,
            Ok(Message::Close(_)) => return Ok(()),
            Ok(_) => {}
            Err(error) if is_tick(&error) => {}
            Err(error) => return Err(gone(&error)),
        }
        if house.stopped() {
            return Err(Error::new(ErrorKind::Interrupted, "the hub was stopped"));
        }
    }
    Ok(())
}

fn forward(to: &Link, bytes: &Bytes) -> Result<()> {
    to.send(bytes).map_err(|e| gone(&e))
}

/// Messages of a session may be large.
fn widen(socket: &mut WebSocket<Reader>) {
    socket.set_config(|c| (c.max_message_size, c.max_frame_size) = (Some(MAX_MESSAGE), Some(MAX_MESSAGE)));
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
