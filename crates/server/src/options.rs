//! How a server listens, and what bounds it.

use std::fmt;
use std::time::Duration;

/// Keys that clients must show. Only their hashes are kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ApiKeys(Vec<blake3::Hash>);

impl ApiKeys {
    /// Any of these keys lets a client in; without keys everybody is.
    pub fn new<K: AsRef<str>>(keys: &[K]) -> ApiKeys {
        ApiKeys(keys.iter().map(|key| blake3::hash(key.as_ref().as_bytes())).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one of them. Hashes are compared in constant time, and all of them.
    pub fn contains(&self, key: &str) -> bool {
        let key = blake3::hash(key.as_bytes());
        self.0.iter().fold(false, |found, own| found | (*own == key))
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Who is let in.
    pub keys: ApiKeys,
    /// Origins whose pages may use the server; `*` is all.
    pub origins: Vec<String>,
    /// Longest body of a request, bytes.
    pub max_body: usize,
    /// Most requests at once, those that wait in the engine's queue included.
    pub max_concurrent: usize,
    /// Most connections at once; further ones wait to be accepted.
    pub max_connections: usize,
    /// How long a client may take to send the head of a request, and again for its body.
    pub read_timeout: Duration,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// How long requests may go on when the server is stopped.
    pub grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            keys: ApiKeys::default(),
            origins: Vec::new(),
            max_body: 8 << 20,
            max_concurrent: 256,
            max_connections: 1024,
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(120),
            grace: Duration::from_secs(30),
        }
    }
}
