//! An agent on this machine as plain data: where it listens or dials, what it offers, and its limits.

use crate::offer::Local;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tapml_graph::{Error, Result};
use tapml_rpc::agent::{Agent, Config, Hub, Isolation, Settings, default_name, token_file};
use tapml_rpc::{Address, tls};

/// Where an agent listens if neither an address nor a hub is given.
const LISTEN: &str = "127.0.0.1:7070";

/// What an agent of this machine's devices is to do. As JSON its fields may be left out, and unknown ones are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentOptions {
    /// Address and port to listen at; port 0 chooses a free one. `127.0.0.1:7070` if neither this nor a hub is given.
    pub listen: Option<String>,
    /// Hubs to dial, with options as for devices, such as `wss://lab:7071?token-file=token.txt`.
    pub hubs: Vec<String>,
    /// The name to be known by at the hubs; this machine's name if not given.
    pub name: Option<String>,
    /// File with the token that clients must show; made if it does not exist. Required unless only this machine can connect.
    pub token_file: Option<PathBuf>,
    /// Certificate chain (PEM) for TLS; only with a key.
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) for TLS; only with a certificate.
    pub tls_key: Option<PathBuf>,
    /// Devices to offer, such as `vulkan:1` or `emulator?check=all`; all devices of this build if empty.
    pub targets: Vec<String>,
    /// Allow plain text where other machines can connect.
    pub insecure: bool,
    /// Most sessions at once.
    pub sessions: usize,
    /// Seconds that one request may run before its session is ended.
    pub deadline: u64,
    /// Seconds that a client may send nothing before its session is ended.
    pub idle: u64,
    /// Bytes of buffers that a session may have.
    pub memory: u64,
    /// Folder that keeps what clients have uploaded; a temporary one if not given.
    pub cache: Option<PathBuf>,
    /// Bytes that this folder may hold.
    pub cache_bytes: u64,
    /// Folder for temporary files; the system's if not given.
    pub temporary: Option<PathBuf>,
    /// Origins of web pages that may connect.
    pub origins: Vec<String>,
}

impl Default for AgentOptions {
    fn default() -> AgentOptions {
        let Config { sessions, settings, blob_bytes, .. } = Config::default();
        AgentOptions {
            listen: None,
            hubs: Vec::new(),
            name: None,
            token_file: None,
            tls_cert: None,
            tls_key: None,
            targets: Vec::new(),
            insecure: false,
            sessions,
            deadline: settings.deadline.as_secs(),
            idle: settings.idle.as_secs(),
            memory: settings.memory,
            cache: None,
            cache_bytes: blob_bytes,
            temporary: None,
            origins: Vec::new(),
        }
    }
}

impl AgentOptions {
    /// The options that a JSON object gives.
    ///
    /// # Errors
    /// Invalid input with line and column, if it is no object, or a field is unknown or of another type.
    pub fn from_json(text: &str) -> Result<AgentOptions> {
        serde_json::from_str(text).map_err(|e| Error::invalid(format!("the agent's options as JSON: {e}")))
    }

    /// The agent, which listens already and is yet to serve. Each session is a process that runs `isolation`, or a thread if there is
    /// none.
    ///
    /// # Errors
    /// If a target is no device of this build, a file cannot be read, or the address cannot be listened at.
    pub fn open(&self, isolation: Option<Isolation>) -> Result<Agent> {
        // Devices that are not here are told at once.
        let offer = Local::new(&self.targets)?;
        let isolation = isolation.unwrap_or_else(|| Isolation::Thread(Arc::new(offer)));
        let mut agent = match (&self.listen, self.hubs.is_empty()) {
            // Whoever names a hub alone need not open a port.
            (None, false) => Agent::new(self.config()?, isolation)?,
            (listen, _) => Agent::bind(listen.as_deref().unwrap_or(LISTEN), self.config()?, isolation)?,
        };
        for url in &self.hubs {
            let address = Address::parse("hub", &[("hub".into(), url.clone())])?;
            agent.join(Hub { address, name: self.name.clone().unwrap_or_else(default_name) });
        }
        Ok(agent)
    }

    /// Whether the connection is encrypted where it listens.
    pub fn is_encrypted(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// The agent's settings. A file of a token is made if it is not there.
    fn config(&self) -> Result<Config> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(tls::server(cert, key)?),
            (None, None) => None,
            _ => return Err(Error::invalid("a certificate and its key belong together, found one of them")),
        };
        Ok(Config {
            token: self.token_file.as_deref().map(token_file).transpose()?,
            tls,
            insecure: self.insecure,
            origins: self.origins.clone(),
            sessions: self.sessions,
            settings: Settings {
                deadline: Duration::from_secs(self.deadline),
                idle: Duration::from_secs(self.idle),
                memory: self.memory,
            },
            blobs: self.cache.clone(),
            blob_bytes: self.cache_bytes,
            temporary: self.temporary.clone(),
            ..Config::default()
        })
    }
}
