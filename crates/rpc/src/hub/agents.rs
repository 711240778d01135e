//! An agent's connection: it registers, is told of sessions, and shows that it is there.

use super::state::{Arrival, HubState, POLL_INTERVAL, gone_error, lock};
use crate::net::gate::Place;
use crate::net::upgrade::OpenSocket;
use crate::net::{Link, Socket, is_timeout};
use crate::wire::limits::{HEARTBEAT, IDLE_TIMEOUT, VERSION};
use crate::wire::{self, AgentWord, HubToAgent, HubWord, Register, convert};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// Most connections of agents at once, those of sessions not counted.
const AGENTS: usize = 1024;

impl HubState {
    /// Serves an agent until it leaves.
    pub(super) fn agent(&self, opened: OpenSocket) -> Result<()> {
        let OpenSocket { mut socket, from, place: waiting } = opened;
        let link = socket.link().clone();
        let connection = self.next.fetch_add(1, Ordering::Relaxed);
        let outcome = self.let_in_agent(&mut socket, &link, from, connection);
        drop(waiting);
        match outcome {
            Ok((name, _place)) => {
                let left = self.attend(&mut socket, &link, connection);
                lock(&self.controls).remove(&connection);
                let gone = lock(&self.pool).leave(connection);
                if let (Some(shared), Some(gone)) = (&self.shared, gone) {
                    shared.remove_agent(&gone);
                }
                log::info!("agent `{name}` has left: {}", left.err().map_or("bye".into(), |e| e.to_string()));
            }
            Err(error) => {
                log::warn!("agent at {from} is not let in: {error}");
                let _ = send_word(&link, HubWord::Failed(convert::error_to_wire(&error)));
            }
        }
        link.finish();
        // The agent gets to see the last message; bounded by the time for being let in, or a tick.
        while socket.read().is_ok_and(|m| !m.is_close()) {}
        Ok(())
    }

    fn let_in_agent(
        &self,
        socket: &mut Socket,
        link: &Arc<Link>,
        from: SocketAddr,
        connection: u64,
    ) -> Result<(String, Place)> {
        let register = loop {
            match socket.read().map_err(|e| Error::invalid(format!("no register: {e}")))? {
                Message::Binary(bytes) => break wire::decode_agent_word(bytes)?,
                Message::Ping(_) | Message::Pong(_) => {}
                _ => return Err(Error::invalid("expected a register in a binary message")),
            }
        };
        let AgentWord::Register(register) = register else {
            return Err(Error::invalid("expected a register first"));
        };
        self.gate.expect(from.ip(), &register.token, self.agent_token)?;
        let place = Place::take(&self.agents, AGENTS).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("the hub has {AGENTS} agents already"))
        })?;
        socket.let_in(POLL_INTERVAL);
        Ok((self.register(link, connection, register)?, place))
    }

    fn register(&self, link: &Arc<Link>, connection: u64, register: Register) -> Result<String> {
        if !(register.version_min..=register.version_max).contains(&VERSION) {
            let (low, high) = (register.version_min, register.version_max);
            let text = format!("the hub speaks version {VERSION}, the agent {low} to {high}");
            return Err(Error::unsupported(text).with_hint("use the same release of TapML on both sides"));
        }
        let names: Vec<String> = register.devices.iter().map(|d| d.name.clone()).collect();
        let (name, before) = self.pool().register(connection, register)?;
        let row = lock(&self.pool).registry().row(&name);
        if let (Some(shared), Some(row)) = (&self.shared, row) {
            shared.put_agent(row);
        }
        let old = before.and_then(|before| lock(&self.controls).remove(&before));
        // It was half open at best: its agent has dialled again.
        old.inspect(|old| old.close());
        lock(&self.controls).insert(connection, link.clone());
        log::info!("agent `{name}` offers {}", names.join(", "));
        send_word(link, HubWord::Registered(wire::Registered { name: name.clone(), version: VERSION }))?;
        Ok(name)
    }

    /// Listens to an agent that is let in.
    fn attend(&self, socket: &mut Socket, link: &Arc<Link>, connection: u64) -> Result<()> {
        let (mut heard, mut pinged) = (Instant::now(), Instant::now());
        while !self.is_stopped() {
            match socket.read() {
                Ok(Message::Binary(bytes)) => {
                    heard = Instant::now();
                    if let Err(error) = self.hear(wire::decode_agent_word(bytes), link, connection) {
                        let _ = send_word(link, HubWord::Failed(convert::error_to_wire(&error)));
                        return Err(error);
                    }
                }
                Ok(Message::Close(_)) => return Ok(()),
                Ok(_) => heard = Instant::now(),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(gone_error(&error)),
            }
            if heard.elapsed() > IDLE_TIMEOUT {
                return Err(gone_error(&format!("silent for {} s", IDLE_TIMEOUT.as_secs())));
            }
            if pinged.elapsed() > HEARTBEAT {
                pinged = Instant::now();
                link.ping().map_err(|e| gone_error(&e))?;
            }
        }
        Ok(())
    }

    fn hear(&self, word: Result<AgentWord>, link: &Arc<Link>, connection: u64) -> Result<()> {
        match word? {
            AgentWord::Heartbeat(_) => send_word(link, HubWord::Heartbeat(wire::Heartbeat {})),
            AgentWord::Register(register) => self.register(link, connection, register).map(drop),
            AgentWord::Refused(refused) => {
                // Only the agent that was asked may refuse.
                let mut pending = lock(&self.pending);
                if pending.get(&refused.session).is_some_and(|p| p.connection == connection)
                    && let Some(pending) = pending.remove(&refused.session)
                {
                    let _ = pending
                        .arrivals
                        .send(Arrival::Refused { reason: refused.reason, busy: refused.busy });
                }
                Ok(())
            }
        }
    }
}

/// Says something to an agent.
pub(super) fn send_word(link: &Link, word: HubWord) -> Result<()> {
    link.send(wire::encode(&HubToAgent { word: Some(word) })).map_err(|e| gone_error(&e))
}
