//! How an agent serves, and the limits of its sessions.

use crate::net::peer::SLOW;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How an agent serves.
#[derive(Clone)]
pub struct Config {
    /// What clients must show; required where other machines can connect.
    pub token: Option<String>,
    /// Certificate and key; without, the connection is plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Allow plain text where other machines can connect.
    pub insecure: bool,
    /// Origins of web pages that may connect; pages of others are refused.
    pub origins: Vec<String>,
    /// Most sessions at once.
    pub sessions: usize,
    /// Limits of each session.
    pub settings: Settings,
    /// Folder of the blobs that clients have sent; a temporary one if not given.
    pub blobs: Option<PathBuf>,
    /// Bytes that the folder may hold.
    pub blob_bytes: u64,
    /// Folder for temporary files; the system's if not given. An app on a phone may not write to that one.
    pub temporary: Option<PathBuf>,
    /// How long a client may take no byte of what is sent to it.
    pub slow: Duration,
}

/// Limits of a session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a request may run before its process is ended.
    pub deadline: Duration,
    /// How long a client may send nothing.
    pub idle: Duration,
    /// Bytes of buffers.
    pub memory: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            token: None,
            tls: None,
            insecure: false,
            origins: Vec::new(),
            sessions: 8,
            settings: Settings {
                deadline: Duration::from_secs(300),
                idle: Duration::from_secs(3600),
                memory: 1 << 40,
            },
            blobs: None,
            blob_bytes: 16 << 30,
            temporary: None,
            slow: SLOW,
        }
    }
}
