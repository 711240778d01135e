//! The way to a device's agent, which dials in for the session, or through the hub that has the agent.

use super::{HubClient, random_id, target_at_agent};
use crate::client::Address;
use crate::client::connect::dial_hub;
use crate::hub::agents::send_word;
use crate::hub::registry::{Destination, Location};
use crate::hub::state::{Arrival, BUSY, POLL_INTERVAL, Pending, gone_error, lock};
use crate::net::{Link, Socket};
use crate::wire::limits::{COMING, HANDSHAKE, PROTOCOL};
use crate::wire::{self, Hello, HubWord, Reply, Request, ToAgent, convert};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Instant;
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// Where the messages of a session go, and where they come from if that is another hub's connection.
pub struct Tunnel {
    pub agent: Arc<Link>,
    pub peer: Option<Socket>,
}

impl HubClient<'_> {
    /// The way to a device's agent.
    pub(super) fn open_tunnel(&mut self, target: &Destination, over: &Arc<AtomicBool>) -> Result<Tunnel> {
        match &target.location {
            Location::Here(connection) => {
                let agent = self.open(target, *connection, over)?;
                Ok(Tunnel { agent, peer: None })
            }
            Location::Away(url) => self.dial(target, url),
        }
    }

    /// Asks the hub that has the agent.
    fn dial(&self, target: &Destination, url: &str) -> Result<Tunnel> {
        let config = &self.hub.config;
        let address = Address {
            ca: config.peers.as_ref().and_then(|peers| peers.ca.clone()),
            hub: true,
            ..Address::parse(url, &[])?
        };
        let mut socket = dial_hub(&address, "forward", PROTOCOL)?;
        let link = socket.link().clone();
        let target = format!("{}/{}", target.place.agent, target_at_agent(&self.hello, target));
        let token = config.token.clone().unwrap_or_default();
        let hello = Hello { target, token, ..self.hello.clone() };
        let hello = ToAgent { seq: self.seq, request: Some(Request::Hello(hello)) };
        link.send(wire::encode(&hello)).map_err(|e| gone_error(&e))?;
        // The agent may take its time to come to that hub.
        link.peer().allow(COMING + HANDSHAKE);
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
        socket.let_in(POLL_INTERVAL);
        socket.widen();
        Ok(Tunnel { agent: link, peer: Some(socket) })
    }

    /// Asks the agent to come; its connection for this session.
    fn open(&mut self, target: &Destination, connection: u64, over: &Arc<AtomicBool>) -> Result<Arc<Link>> {
        let control = lock(&self.hub.controls).get(&connection).cloned();
        let control = control.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the agent has left"))?;
        let session = random_id()?;
        let (arrivals, told) = mpsc::channel();
        let (link, client) = (self.link.clone(), self.id);
        let pending = Pending { connection, arrivals, link, over: over.clone(), client };
        lock(&self.hub.pending).insert(session.clone(), pending);
        let open = wire::Open { session: session.clone(), target: target_at_agent(&self.hello, target) };
        let come = send_word(&control, HubWord::Open(open)).and_then(|()| self.arrival(&told, target));
        if lock(&self.hub.pending).remove(&session).is_some() {
            // It has not come, and need not any more.
            let _ = send_word(&control, HubWord::Close(wire::Close { session }));
        }
        come
    }

    fn arrival(&self, told: &mpsc::Receiver<Arrival>, target: &Destination) -> Result<Arc<Link>> {
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
            if !lock(&self.hub.pool).registry().has(&target.location) {
                return Err(unavailable("the agent has left".into()));
            }
            if Instant::now() > until || self.hub.is_stopped() {
                return Err(unavailable(format!("the agent did not come within {} s", COMING.as_secs())));
            }
        }
    }
}
