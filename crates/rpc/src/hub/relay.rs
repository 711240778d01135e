//! The relay: the messages of a session, copied both ways between a client and its device's agent until one side leaves.

use super::clients::{HubClient, Tunnel, refuse, target_at_agent};
use super::registry::Destination;
use super::state::{Arrival, HubState, POLL_INTERVAL, Pending, gone_error};
use crate::agent::accept::CLOSE_GRACE;
use crate::net::upgrade::OpenSocket;
use crate::net::{Link, Socket, is_timeout};
use crate::wire::limits::too_large;
use crate::wire::{self, Hello, Reply, Request, ToAgent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// How often a relay renews the lease of its session.
const RENEWAL: Duration = Duration::from_secs(1);

/// One direction of a session.
struct Direction<'a> {
    hub: &'a HubState,
    from: &'a mut Socket,
    to: &'a Link,
    /// Whether a side has left.
    over: &'a AtomicBool,
    /// The client whose lease this is; `None` if it is another hub's.
    client: Option<u64>,
}

impl Direction<'_> {
    /// Copies messages until a side has left.
    fn copy(&mut self) -> Result<()> {
        let mut renewed = Instant::now();
        while !self.over.load(Ordering::Acquire) {
            match self.from.read() {
                Ok(Message::Binary(bytes)) => self.to.send(bytes).map_err(|e| gone_error(&e))?,
                Ok(Message::Close(_)) => return Ok(()),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(too_large(&error).unwrap_or_else(|| gone_error(&error))),
            }
            if self.hub.is_stopped() {
                return Err(Error::new(ErrorKind::Interrupted, "the hub was stopped"));
            }
            if let Some(client) = self.client
                && renewed.elapsed() > RENEWAL
            {
                renewed = Instant::now();
                if !self.hub.pool().leases.renew(client, renewed) {
                    return Err(Error::new(ErrorKind::Interrupted, "the lease of the device has expired"));
                }
            }
        }
        Ok(())
    }

    /// Copies what an agent says to the client, which is told when the agent is lost.
    fn copy_to_client(&mut self) {
        let how = self.copy();
        if !self.over.swap(true, Ordering::AcqRel) {
            let text = match how {
                Ok(()) => "the agent closed the session".to_string(),
                Err(error) => format!("the session's agent is lost: {error}"),
            };
            // Not an answer to any request: whatever the client waits for, it waits in vain.
            refuse(self.to, 0, &Error::new(ErrorKind::DeviceLost, text));
        }
    }
}

impl HubState {
    /// Serves the connection that an agent has dialled for a session: copies what it says to the client.
    pub(super) fn session(&self, opened: OpenSocket, pending: Pending) -> Result<()> {
        let OpenSocket { mut socket, place: waiting, .. } = opened;
        drop(waiting);
        let link = socket.link().clone();
        socket.let_in(POLL_INTERVAL);
        socket.widen();
        let Pending { arrivals, link: to, over, client, .. } = pending;
        if arrivals.send(Arrival::Here(link)).is_err() {
            return Err(Error::new(ErrorKind::Interrupted, "the client has given up"));
        }
        // The client's thread closes this connection when it is done with it.
        Direction { hub: self, from: &mut socket, to: &to, over: &over, client }.copy_to_client();
        Ok(())
    }
}

impl HubClient<'_> {
    /// Copies messages until one side leaves.
    pub(super) fn relay(&mut self, target: &Destination, tunnel: Tunnel, over: &AtomicBool) -> Result<()> {
        log::info!("{} has {}", self.hello.client.escape_debug(), target.place);
        let Tunnel { agent, peer } = tunnel;
        let leased = wire::Leased { device: target.place.to_string(), agent: target.agent.clone() };
        let begun = self.say(0, Reply::Leased(leased)).and_then(|()| {
            // Another hub has said hello for this client already.
            if peer.is_some() {
                return Ok(());
            }
            let hello = Hello { target: target_at_agent(&self.hello, target), ..self.hello.clone() };
            let hello = ToAgent { seq: self.seq, request: Some(Request::Hello(hello)) };
            agent.send(wire::encode(&hello)).map_err(|e| gone_error(&e))
        });
        self.socket.widen();
        let (hub, to, client) = (self.hub, self.link.clone(), self.id);
        let how = std::thread::scope(|scope| {
            if let Some(mut peer) = peer {
                scope.spawn(move || {
                    Direction { hub, from: &mut peer, to: &to, over, client }.copy_to_client();
                });
            }
            let to_agent = &mut Direction { hub, from: &mut self.socket, to: &agent, over, client };
            let how = begun.and_then(|()| to_agent.copy());
            if !over.swap(true, Ordering::AcqRel)
                && let Err(error) = how.as_ref()
                && error.kind() == ErrorKind::InvalidInput
            {
                refuse(&self.link, 0, error);
                self.socket.drain(CLOSE_GRACE);
            }
            agent.finish();
            agent.close();
            how
        });
        if let Err(error) = how {
            log::info!("{}: the client is lost: {error}", target.place);
        }
        Ok(())
    }
}
