//! A client's time in the queue, until it has leased a device.

use super::HubClient;
use crate::hub::device_request::DeviceRequest;
use crate::hub::lease::WAIT_TERM;
use crate::hub::registry::Destination;
use crate::hub::state::{ClientEntry, HubState, gone_error, lock};
use crate::net::{Link, is_timeout};
use crate::wire::limits::HEARTBEAT;
use crate::wire::{self, Reply, Request};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// How long a client waits for a device that no agent offers, unless it says otherwise: agents that have lost their hub
/// come back within this.
const AGENT_WAIT_TIMEOUT: Duration = Duration::from_secs(10);

impl HubState {
    /// Puts a client into the queue; its number there.
    pub(super) fn enqueue(&self, name: &str, priority: i32, link: &Arc<Link>) -> u64 {
        let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_millis() as u64);
        let id = self.pool().leases.enqueue(DeviceRequest::parse(name), priority, since, Instant::now());
        lock(&self.clients).insert(id, ClientEntry { link: link.clone(), claim: None });
        if let Some(shared) = &self.shared {
            shared.put_waiter(id, name, priority, since);
        }
        id
    }

    /// A client has what it has waited for.
    pub(super) fn stop_waiting(&self, id: u64) {
        if let Some(shared) = &self.shared {
            shared.remove_waiter(id);
        }
    }

    /// A client gives its device back, and waits on.
    pub(super) fn give_back(&self, id: u64) {
        lock(&self.pool).leases.give_back(id, Instant::now());
        let claim = lock(&self.clients).get_mut(&id).and_then(|entry| entry.claim.take());
        self.release(claim);
    }

    /// A client has left.
    pub(super) fn leave(&self, id: u64) {
        lock(&self.pool).leases.leave(id);
        self.forget(id);
    }

    /// Leases a device to a client if one is free that nobody before it can take.
    fn lease(&self, id: u64) -> Option<Destination> {
        let target = self.pool().grant(id, Instant::now())?;
        let Some(shared) = &self.shared else { return Some(target) };
        match shared.claim(&target, id) {
            Ok(Some(claim)) => {
                match lock(&self.clients).get_mut(&id) {
                    Some(entry) => entry.claim = Some(claim),
                    // The client has left while the broker was asked.
                    None => self.release(Some(claim)),
                }
                return Some(target);
            }
            Ok(None) => log::debug!("{}: another hub was faster", target.place),
            // Without the broker nobody knows who has what: the client waits.
            Err(error) => log::debug!("{}: {error}", target.place),
        }
        self.give_back(id);
        None
    }
}

impl HubClient<'_> {
    /// Waits until this client's turn has come.
    pub(super) fn queue(&mut self, id: u64) -> Result<Destination> {
        loop {
            if self.hub.is_stopped() {
                return Err(Error::new(ErrorKind::Unavailable, "the hub is being stopped"));
            }
            if let Some(target) = self.hub.lease(id) {
                return Ok(target);
            }
            let prospects = self.hub.pool().leases.position(id);
            if prospects.place == 0 {
                return Err(gone_error(&format!("silent for {} s", WAIT_TERM.as_secs())));
            }
            let trouble = self.hub.shared.as_ref().and_then(|shared| shared.table.trouble());
            let waited = self.since.elapsed();
            let limit = match (self.hello.wait_ms, prospects.devices) {
                // All devices that there were have refused: nothing is left to wait for.
                (0, 0) if !self.refusals.is_empty() => Duration::ZERO,
                (0, 0) => AGENT_WAIT_TIMEOUT,
                // A device that is leased becomes free.
                (0, _) => Duration::MAX,
                (wait, _) => Duration::from_millis(wait),
            };
            if waited >= limit {
                return Err(self.in_vain(prospects.devices, trouble.as_deref()));
            }
            let trouble = trouble.unwrap_or_default();
            self.report_position(wire::Queued {
                place: prospects.place,
                devices: prospects.devices,
                trouble,
            })?;
            self.look(id)?;
        }
    }

    fn in_vain(&self, devices: u32, trouble: Option<&str>) -> Error {
        let known: Vec<String> =
            self.hub.pool().list().into_iter().take(16).map(|offer| offer.name).collect();
        let asked = self.hello.target.escape_debug();
        if let Some(trouble) = trouble {
            let text = format!(
                "`{asked}` could not be leased: {trouble}, and without it this hub can neither lease devices nor see those of other hubs"
            );
            return Error::new(ErrorKind::Unavailable, text).with_hint(
                "sessions that are open go on; ask again when the hubs' broker (--broker) answers",
            );
        }
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
    fn report_position(&mut self, queued: wire::Queued) -> Result<()> {
        if self.reported.as_ref().is_some_and(|(when, told)| *told == queued && when.elapsed() < HEARTBEAT) {
            return Ok(());
        }
        self.say(0, Reply::Queued(queued.clone()))?;
        self.reported = Some((Instant::now(), queued));
        self.link.ping().map_err(|e| gone_error(&e))
    }

    /// Looks for a tick whether the waiting client says something.
    fn look(&mut self, id: u64) -> Result<()> {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => {
                self.hub.pool().leases.renew(id, Instant::now());
                let message = wire::decode_request(bytes)?;
                match message.request {
                    Some(Request::Ping(_)) => self.say(message.seq, Reply::Pong(wire::Pong {})),
                    Some(Request::Cancel(_)) => {
                        Err(Error::new(ErrorKind::Interrupted, "given up while waiting for a device"))
                    }
                    _ => Err(Error::invalid("a request came before the welcome")),
                }
            }
            Ok(Message::Close(_)) => Err(gone_error(&"closed while it waited")),
            Ok(_) => {
                self.hub.pool().leases.renew(id, Instant::now());
                Ok(())
            }
            Err(error) if is_timeout(&error) => Ok(()),
            Err(error) => Err(gone_error(&error)),
        }
    }
}
