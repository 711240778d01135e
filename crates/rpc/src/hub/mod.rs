//! A hub: agents that cannot be dialled dial in, clients ask for a device by name or by platform, and the hub joins
//! both. A session is end to end what it is without a hub: the hub copies its messages and knows none but the first.

mod agents;
mod clients;
mod device_request;
mod lease;
mod pages;
mod pool;
mod registry;
mod relay;
mod route;
mod shared;

pub use shared::Table;

use crate::net::Link;
use crate::net::gate::Gate;
use crate::net::server::{Server, Stopper, listen};
use clients::Pending;
use lease::Expired;
use pool::Pool;
use shared::Shared;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};

/// Most connections of agents at once, those of sessions not counted.
const AGENTS: usize = 1024;

/// How often a thread looks around while its connection is silent.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// How a hub serves.
#[derive(Clone)]
pub struct Config {
    /// What clients must show; required where other machines can connect.
    pub token: Option<String>,
    /// What agents must show; the clients' token if not given.
    pub agent_token: Option<String>,
    /// Certificate and key; without, the connection is plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Allow plain text where other machines can connect.
    pub insecure: bool,
    /// Origins of web pages that may connect, beside the hub's own page.
    pub origins: Vec<String>,
    /// Most clients at once, waiting ones included.
    pub clients: usize,
    /// What this hub shares with those of other hosts.
    pub peers: Option<Peers>,
}

/// Hubs of other hosts: they see each other's agents, and a session goes through both the client's hub and the agent's.
#[derive(Clone)]
pub struct Peers {
    /// What they share.
    pub table: Arc<dyn Table>,
    /// Where they reach this hub, such as `wss://lab1:7071`; where it listens if not given, unless that is every address.
    pub url: Option<String>,
    /// Certificates to trust at other hubs beside the system's.
    pub ca: Option<std::path::PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            token: None,
            agent_token: None,
            tls: None,
            insecure: false,
            origins: Vec::new(),
            clients: 1024,
            peers: None,
        }
    }
}

/// A hub that listens.
pub struct Hub {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<HubState>,
}

/// What the threads of a hub share.
struct HubState {
    config: Config,
    agent_token: Option<blake3::Hash>,
    gate: Gate,
    agents: Arc<AtomicUsize>,
    pool: Mutex<Pool>,
    /// The clients that wait or have a device.
    clients: Mutex<HashMap<u64, ClientEntry>>,
    /// The agents' connections.
    controls: Mutex<HashMap<u64, Arc<Link>>>,
    /// Sessions whose agent has yet to come.
    pending: Mutex<HashMap<String, Pending>>,
    next: AtomicU64,
    stop: Arc<AtomicBool>,
    shared: Option<Shared>,
}

/// A client that waits or has a device.
struct ClientEntry {
    link: Arc<Link>,
    /// The lease's row, where hubs share a table.
    claim: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Listens at an address such as `127.0.0.1:7071`; port 0 chooses one. Where other machines can connect, fails without
    /// a token, and without TLS unless plain text is allowed.
    pub fn bind(address: &str, config: Config) -> Result<Hub> {
        let sealed = config.tls.is_some() || config.insecure;
        let (listener, address) = listen(address, config.token.is_some(), sealed)?;
        let agent_token = config.agent_token.as_ref().or(config.token.as_ref());
        let scheme = if config.tls.is_some() { "wss" } else { "ws" };
        let shared = config.peers.as_ref().map(|peers| -> Result<Shared> {
            let url = match &peers.url {
                Some(url) => url.clone(),
                None if address.ip().is_unspecified() => {
                    return Err(undialable_error(scheme, address.port()));
                }
                None => format!("{scheme}://{address}"),
            };
            Ok(Shared { table: peers.table.clone(), id: clients::random_id()?, url, seen: AtomicU64::new(0) })
        });
        let state = HubState {
            shared: shared.transpose()?,
            agent_token: agent_token.map(|t| blake3::hash(t.as_bytes())),
            gate: Gate::new(config.token.as_deref(), config.clients, "clients"),
            config,
            agents: Arc::default(),
            pool: Mutex::default(),
            clients: Mutex::default(),
            controls: Mutex::default(),
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            stop: Arc::default(),
        };
        Ok(Hub { listener, address, state: Arc::new(state) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper::new(self.state.stop.clone(), Some(self.address))
    }

    /// Serves until stopped. What goes wrong with one connection is logged and concerns that one alone.
    pub fn serve(&self) -> Result<()> {
        let HubState { gate, config, stop, .. } = &*self.state;
        let (tls, routes) = (config.tls.clone(), route::routes(self.state.clone()));
        Server { listener: &self.listener, gate, tls, routes, stop }.serve()
    }
}

/// Other hubs cannot dial an address that stands for all of this machine's.
fn undialable_error(scheme: &str, port: u16) -> Error {
    let text =
        "hubs that share a broker dial each other, and nobody can dial the address that this one listens at";
    Error::invalid(text).with_hint(format!("say where it is reached: --advertise {scheme}://HOST:{port}"))
}

impl HubState {
    /// Devices and leases as of now, with what other hubs have told by now.
    fn pool(&self) -> MutexGuard<'_, Pool> {
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
    fn forget(&self, id: u64) -> Option<ClientEntry> {
        let mut entry = lock(&self.clients).remove(&id);
        self.release(entry.as_mut().and_then(|entry| entry.claim.take()));
        if let Some(shared) = &self.shared {
            shared.remove_waiter(id);
        }
        entry
    }

    /// Tells the other hubs that a device is free.
    fn release(&self, claim: Option<String>) {
        if let (Some(shared), Some(claim)) = (&self.shared, claim) {
            shared.table.remove(&claim);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The other side is gone.
fn gone_error(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("the other side is gone: {error}"))
}
