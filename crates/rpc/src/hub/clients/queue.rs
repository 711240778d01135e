//! A client's time in the queue, until it has leased a device.

use super::HubClient;
use crate::hub::registry::{DeviceRequest, Lease};
use crate::hub::{HubState, gone_error, is_timeout, lock};
use crate::wire::limits::{ASLEEP, HEARTBEAT};
use crate::wire::{self, Reply, Request};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::Message;

/// How long a client waits for a device that no agent offers, unless it says otherwise: agents that have lost their hub
/// come back within this.
const AGENT_WAIT_TIMEOUT: Duration = Duration::from_secs(10);

impl HubState {
    /// Puts a client into the queue; its number there.
    pub(super) fn enqueue(&self, name: &str, priority: i32) -> u64 {
        let mut registry = lock(&self.registry);
        let id = registry.enqueue(DeviceRequest::parse(name), priority);
        let since = registry.waiting_since(id);
        drop(registry);
        if let Some(shared) = &self.shared {
            shared.put_waiter(id, name, priority, since);
        }
        id
    }
}

impl HubClient<'_> {
    /// This client waits no more.
    pub(super) fn dequeue(&self) {
        lock(&self.hub.registry).dequeue(self.id);
        if let (Some(shared), true) = (&self.hub.shared, self.id > 0) {
            shared.remove_waiter(self.id);
        }
    }

    /// Gives the device back.
    pub(super) fn release(&mut self) {
        lock(&self.hub.registry).release(self.id);
        if let (Some(shared), Some(claim)) = (&self.hub.shared, self.claim.take()) {
            shared.table.remove(&claim);
        }
    }

    /// Leases a device if one is free that nobody before this client can take.
    fn lease(&mut self) -> Option<Lease> {
        let lease = self.hub.registry().lease(self.id)?;
        let Some(shared) = &self.hub.shared else { return Some(lease) };
        match shared.claim(&lease, self.id) {
            Ok(Some(key)) => {
                self.claim = Some(key);
                return Some(lease);
            }
            Ok(None) => log::debug!("{}: another hub was faster", lease.place),
            // Without the broker nobody knows who has what: the client waits.
            Err(error) => log::debug!("{}: {error}", lease.place),
        }
        lock(&self.hub.registry).release(self.id);
        None
    }

    /// Waits until this client's turn has come.
    pub(super) fn queue(&mut self) -> Result<Lease> {
        loop {
            if self.hub.is_stopped() {
                return Err(Error::new(ErrorKind::Unavailable, "the hub is being stopped"));
            }
            if let Some(lease) = self.lease() {
                return Ok(lease);
            }
            let prospects = self.hub.registry().queue_position(self.id);
            let trouble = self.hub.shared.as_ref().and_then(|shared| shared.table.trouble());
            let waited = self.since.elapsed();
            let limit = match (self.hello.wait_ms, prospects.devices) {
                (0, 0) if !self.refusals.is_empty() => Duration::ZERO,
                (0, 0) => AGENT_WAIT_TIMEOUT,
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
            self.look()?;
        }
    }

    fn in_vain(&self, devices: u32, trouble: Option<&str>) -> Error {
        let known: Vec<String> =
            self.hub.registry().list().into_iter().take(16).map(|offer| offer.name).collect();
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
            Ok(Message::Close(_)) => Err(gone_error(&"closed while it waited")),
            Ok(_) => {
                self.heard = Instant::now();
                Ok(())
            }
            Err(error) if is_timeout(&error) => {
                if self.heard.elapsed() > ASLEEP {
                    Err(gone_error(&format!("silent for {} s", ASLEEP.as_secs())))
                } else {
                    Ok(())
                }
            }
            Err(error) => Err(gone_error(&error)),
        }
    }
}
