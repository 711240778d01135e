//! An agent: offers a machine's devices to clients that connect, or through a hub that it dials. Every session runs in a
//! process of its own.

pub(crate) mod accept;
mod config;
pub(crate) mod dial;
mod journal;
mod session;
mod token;
mod worker;

pub use crate::net::server::Stopper;
pub use config::{Config, Settings};
pub use dial::{Hub, default_name};
pub use token::token_file;
pub use worker::Isolation;

use crate::executor;
use crate::net::gate::Gate;
use crate::net::server::{Server, listen};
use crate::offer::Offer;
use accept::Door;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tapml_files::Temporary;
use tapml_graph::{Error, ErrorKind, Result};

/// How the names of agents' temporary folders begin.
const FOLDER: &str = "tapml-agent-";

/// An agent that listens, or dials hubs, or both.
pub struct Agent {
    listener: Option<(TcpListener, SocketAddr)>,
    hubs: Vec<Hub>,
    door: Arc<Door>,
    stop: Arc<AtomicBool>,
}

impl Agent {
    /// An agent that nobody knows yet.
    pub fn new(config: Config, isolation: Isolation) -> Result<Agent> {
        let temporary = match &config.temporary {
            Some(folder) => Temporary::new_in(folder, FOLDER)?,
            None => Temporary::new(FOLDER)?,
        };
        let blobs = config.blobs.clone().unwrap_or_else(|| temporary.path().join("blobs"));
        let gate = Gate::new(config.token.as_deref(), config.sessions, "sessions");
        let stop = Arc::new(AtomicBool::new(false));
        let door = Door { config, gate, isolation, blobs, temporary, stop: stop.clone() };
        Ok(Agent { listener: None, hubs: Vec::new(), door: Arc::new(door), stop })
    }

    /// Listens at an address such as `127.0.0.1:7000`; port 0 chooses one. Where other machines can connect, fails without
    /// a token, and without TLS unless plain text is allowed.
    pub fn bind(address: &str, config: Config, isolation: Isolation) -> Result<Agent> {
        let listens = listen(address, config.token.is_some(), config.tls.is_some() || config.insecure)?;
        Ok(Agent { listener: Some(listens), ..Agent::new(config, isolation)? })
    }

    /// Dials a hub as well, and again whenever the connection breaks, while [`Agent::serve`] runs.
    pub fn join(&mut self, hub: Hub) {
        self.hubs.push(hub);
    }

    /// Where it listens; port 0 if it dials hubs only.
    pub fn address(&self) -> SocketAddr {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        self.listener.as_ref().map_or(nowhere, |(_, address)| *address)
    }

    /// How many sessions are open.
    pub fn count_sessions(&self) -> usize {
        self.door.gate.count()
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper::new(self.stop.clone(), self.listener.as_ref().map(|(_, address)| *address))
    }

    /// Serves until stopped. What goes wrong with one client is logged and concerns that client alone.
    pub fn serve(&self) -> Result<()> {
        std::thread::scope(|scope| {
            for hub in &self.hubs {
                scope.spawn(|| dial::stay(&self.door, hub));
            }
            self.listener.as_ref().map_or(Ok(()), |(listener, _)| {
                let Door { gate, config, .. } = &*self.door;
                let (tls, routes) = (config.tls.clone(), self.door.routes());
                Server { listener, gate, tls, routes, stop: &self.stop }.serve()
            })
        })
    }
}

/// What a session's process does: serves the session that its standard input holds.
pub fn run_session(offer: &dyn Offer) -> Result<()> {
    // Linux ends this process before others when memory runs out; elsewhere there is no such file.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    worker::end_with_the_agent();
    let streams = worker::inherit_streams();
    let mut streams =
        streams.map_err(|e| Error::new(ErrorKind::Io, format!("this process has no session: {e}")))?;
    executor::serve(&mut streams.from, &mut streams.to, offer)
}

/// Serves one session on any two streams, as its process does: frames of a length (4 bytes, little-endian), a number
/// (8 bytes) and a message of the wire, the first one of which holds the session's settings.
pub fn serve_session(
    from: &mut impl std::io::Read,
    to: &mut impl std::io::Write,
    offer: &dyn Offer,
) -> Result<()> {
    executor::serve(from, to, offer)
}
