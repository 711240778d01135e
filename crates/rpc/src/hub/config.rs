//! How a hub serves, and what it shares with others.

use super::shared::Table;
use std::sync::Arc;

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
