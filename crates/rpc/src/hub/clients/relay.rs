//! The messages of a session: the way to the device's agent, here or at another hub, and their copying both ways.

use super::{HubClient, random_id, refuse};
use crate::agent::accept::CLOSE_GRACE;
use crate::agent::dial;
use crate::agent::link::{Link, Reader};
use crate::client::Address;
use crate::hub::agents::send_word;
use crate::hub::registry::{Lease, Location};
use crate::hub::{HubState, POLL_INTERVAL, gone_error, is_timeout, lock};
use crate::wire::limits::{COMING, HANDSHAKE, MAX_MESSAGE, PROTOCOL, too_large};
use crate::wire::{self, Hello, HubWord, Reply, Request, ToAgent, convert};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::{Message, WebSocket};

/// The detail of an error that says that an agent has no place for a session now; it goes from hub to hub.
pub(super) const BUSY: &str = "busy";

/// A session whose agent has yet to come.
pub(in crate::hub) struct Pending {
    /// The agent's connection.
    pub connection: u64,
    /// Tells the client's thread.
    pub arrivals: mpsc::Sender<Arrival>,
    client: Arc<Link>,
    over: Arc<AtomicBool>,
}

/// An agent's answer to an Open.
pub(in crate::hub) enum Arrival {
    /// It has dialled the session's connection.
    Here(Arc<Link>),
    /// It does not want to, and why; `busy` if it may want to later.
    Refused { reason: String, busy: bool },
}

/// Where the messages of a session go, and where they come from if that is another hub's connection.
pub(super) struct Through {
    agent: Arc<Link>,
    peer: Option<WebSocket<Reader>>,
}

impl HubState {
    /// Serves the connection that an agent has dialled for a session: copies what it says to the client.
    pub(in crate::hub) fn session(
        &self,
        mut socket: WebSocket<Reader>,
        link: Arc<Link>,
        pending: Pending,
    ) -> Result<()> {
        socket.get_mut().let_in(POLL_INTERVAL).map_err(|e| gone_error(&e))?;
        widen(&mut socket);
        let Pending { arrivals: tell, client, over, .. } = pending;
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

impl HubClient<'_> {
    /// The way to a device's agent.
    pub(super) fn open_tunnel(&mut self, lease: &Lease, over: &Arc<AtomicBool>) -> Result<Through> {
        match &lease.location {
            Location::Here(connection) => {
                let agent = self.open(lease, *connection, over)?;
                Ok(Through { agent, peer: None })
            }
            Location::Away(url) => self.dial(lease, url),
        }
    }

    /// Asks the hub that has the agent.
    fn dial(&self, lease: &Lease, url: &str) -> Result<Through> {
        let config = &self.hub.config;
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
        link.send(&wire::encode(&hello)).map_err(|e| gone_error(&e))?;
        // The agent may take its time to come to that hub.
        link.allow(COMING + HANDSHAKE);
        loop {
            match socket.read().map_err(|e| gone_error(&e))? {
                Message::Binary(bytes) => match wire::decode_reply(bytes)?.reply {
                    Some(Reply::Leased(_)) => break,
                    Some(Reply::Failed(failed)) => return Err(convert::error_from_wire(failed)),
                    _ => {
                        return Err(Error::invalid("the other hub answers with something else than a lease"));
                    }
                },
                Message::Close(_) => return Err(gone_error(&"the other hub closed the connection")),
                _ => {}
            }
        }
        socket.get_mut().let_in(POLL_INTERVAL).map_err(|e| gone_error(&e))?;
        widen(&mut socket);
        Ok(Through { agent: link, peer: Some(socket) })
    }

    /// Copies messages until one side leaves.
    pub(super) fn join(&mut self, lease: &Lease, through: Through, over: &AtomicBool) -> Result<()> {
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
            agent.send(&wire::encode(&hello)).map_err(|e| gone_error(&e))
        });
        widen(&mut self.socket);
        let (house, client) = (self.hub, self.link.clone());
        let how = std::thread::scope(|scope| {
            if let Some(mut peer) = peer {
                scope.spawn(move || house.relay(&mut peer, &client, over));
            }
            let how = begun.and_then(|()| copy(&mut self.socket, &agent, over, house));
            if !over.swap(true, Ordering::AcqRel)
                && let Err(error) = how.as_ref()
                && error.kind() == ErrorKind::InvalidInput
            {
                refuse(&self.link, 0, error);
                self.socket.get_mut().drain(CLOSE_GRACE);
            }
            agent.finish();
            agent.close();
            how
        });
        if let Err(error) = how {
            log::info!("{}: the client is lost: {error}", lease.place);
        }
        Ok(())
    }

    /// Asks the agent to come; its connection for this session.
    fn open(&mut self, lease: &Lease, connection: u64, over: &Arc<AtomicBool>) -> Result<Arc<Link>> {
        let control = lock(&self.hub.controls).get(&connection).cloned();
        let control = control.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the agent has left"))?;
        let session = random_id()?;
        let (tell_me, told) = mpsc::channel();
        let pending =
            Pending { connection, arrivals: tell_me, client: self.link.clone(), over: over.clone() };
        lock(&self.hub.pending).insert(session.clone(), pending);
        let open = wire::Open { session: session.clone(), target: self.target(lease) };
        let come = send_word(&control, HubWord::Open(open)).and_then(|()| self.arrival(&told, lease));
        if lock(&self.hub.pending).remove(&session).is_some() {
            // It has not come, and need not any more.
            let _ = send_word(&control, HubWord::Close(wire::Close { session }));
        }
        come
    }

    fn arrival(&self, told: &mpsc::Receiver<Arrival>, lease: &Lease) -> Result<Arc<Link>> {
        let until = Instant::now() + COMING;
        let unavailable = |text: String| Error::new(ErrorKind::Unavailable, text);
        loop {
            match told.recv_timeout(POLL_INTERVAL) {
                Ok(Arrival::Here(link)) => return Ok(link),
                Ok(Arrival::Refused { reason, busy }) => {
                    let refused = unavailable(format!("the agent refuses: {}", reason.escape_debug()));
                    return Err(if busy { refused.with_detail(BUSY, "yes") } else { refused });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(unavailable("the agent's connection broke".into()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if !lock(&self.hub.registry).has(&lease.location) {
                return Err(unavailable("the agent has left".into()));
            }
            if Instant::now() > until || self.hub.is_stopped() {
                return Err(unavailable(format!("the agent did not come within {} s", COMING.as_secs())));
            }
        }
    }
}

/// Gives what comes from one side to the other until either is done.
fn copy(from: &mut WebSocket<Reader>, to: &Link, over: &AtomicBool, house: &HubState) -> Result<()> {
    while !over.load(Ordering::Acquire) {
        match from.read() {
            Ok(Message::Binary(bytes)) => forward(to, &bytes)?,
            Ok(Message::Close(_)) => return Ok(()),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(too_large(&error).unwrap_or_else(|| gone_error(&error))),
        }
        if house.is_stopped() {
            return Err(Error::new(ErrorKind::Interrupted, "the hub was stopped"));
        }
    }
    Ok(())
}

fn forward(to: &Link, bytes: &Bytes) -> Result<()> {
    to.send(bytes).map_err(|e| gone_error(&e))
}

/// Messages of a session may be large.
fn widen(socket: &mut WebSocket<Reader>) {
    socket.set_config(|c| (c.max_message_size, c.max_frame_size) = (Some(MAX_MESSAGE), Some(MAX_MESSAGE)));
}
