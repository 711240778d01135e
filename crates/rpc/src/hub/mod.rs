//! A hub: agents that cannot be dialled dial in, clients ask for a device by name or by platform, and the hub joins
//! both. A session is end to end what it is without a hub: the hub copies its messages and knows none but the first.

mod agents;
mod clients;
mod config;
mod device_request;
mod lease;
mod pages;
mod pool;
mod registry;
mod relay;
mod route;
mod rows;
mod shared;
mod state;

pub use config::{Config, Peers};
pub use shared::Table;

use crate::net::gate::Gate;
use crate::net::server::{Server, Stopper, listen};
use shared::Shared;
use state::HubState;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tapml_graph::{Error, Result};

/// A hub that listens.
pub struct Hub {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<HubState>,
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
