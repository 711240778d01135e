//! What the threads of a hub share, and what they tell one another.

use super::config::Config;
use super::lease::Expired;
use super::pool::Pool;
use super::shared::Shared;
use crate::net::Link;
use crate::net::gate::Gate;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind};

/// How often a thread looks around while its connection is silent.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// The detail of an error that says that an agent has no place for a session now; it goes from hub to hub.
pub(super) const BUSY: &str = "busy";

/// What the threads of a hub share.
pub(super) struct HubState {
    pub(super) config: Config,
    pub(super) agent_token: Option<blake3::Hash>,
    pub(super) gate: Gate,
    pub(super) agents: Arc<AtomicUsize>,
    pub(super) pool: Mutex<Pool>,
    /// The clients that wait or have a device.
    pub(super) clients: Mutex<HashMap<u64, ClientEntry>>,
    /// The agents' connections.
    pub(super) controls: Mutex<HashMap<u64, Arc<Link>>>,
    /// Sessions whose agent has yet to come.
    pub(super) pending: Mutex<HashMap<String, Pending>>,
    pub(super) next: AtomicU64,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) shared: Option<Shared>,
}

/// A client that waits or has a device.
pub(super) struct ClientEntry {
    pub(super) link: Arc<Link>,
    /// The lease's row, where hubs share a table.
    pub(super) claim: Option<String>,
}

/// A session whose agent has yet to come.
pub(super) struct Pending {
    /// The agent's connection.
    pub(super) connection: u64,
    /// Tells the client's thread.
    pub(super) arrivals: mpsc::Sender<Arrival>,
    /// The client's connection.
    pub(super) link: Arc<Link>,
    /// Whether a side has left.
    pub(super) over: Arc<AtomicBool>,
    /// The client whose lease this is; `None` if it is another hub's.
    pub(super) client: Option<u64>,
}

/// An agent's answer to an Open.
pub(super) enum Arrival {
    /// It has dialled the session's connection.
    Here(Arc<Link>),
    /// It does not want to, and why; `busy` if it may want to later.
    Refused { reason: String, busy: bool },
}

impl HubState {
    /// Devices and leases as of now, with what other hubs have told by now.
    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        let mut pool = lock(&self.pool);
        if let Some(rows) = self.shared.as_ref().and_then(Shared::changed_rows) {
            pool.update_remote(rows);
        }
        for Expired { id, held } in pool.leases.advance(Instant::now()) {
            let entry = self.forget(id);
            // A client that waits is told by its own thread. A relay that renews nothing is held up by a connection.
            if let (Some(place), Some(entry)) = (held, entry) {
                log::warn!("{place}: its client's lease has expired");
                entry.link.close();
            }
        }
        pool
    }

    /// Ends what is kept for a client beside its place in the pool.
    pub(super) fn forget(&self, id: u64) -> Option<ClientEntry> {
        let mut entry = lock(&self.clients).remove(&id);
        self.release(entry.as_mut().and_then(|entry| entry.claim.take()));
        if let Some(shared) = &self.shared {
            shared.remove_waiter(id);
        }
        entry
    }

    /// Tells the other hubs that a device is free.
    pub(super) fn release(&self, claim: Option<String>) {
        if let (Some(shared), Some(claim)) = (&self.shared, claim) {
            shared.table.remove(&claim);
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The other side is gone.
pub(super) fn gone_error(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("the other side is gone: {error}"))
}
