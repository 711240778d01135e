//! Connections over a network: TCP or TLS, HTTP and WebSockets on top of it, both of sides that listen and of sides that dial.
//!
//! Sessions are synchronous code: each has threads of its own, which read a [`Socket`] and write to its [`Link`]. What has not
//! got so far (TLS, the head of a request) is tasks on the [`runtime`].

pub mod awake;
pub mod gate;
pub mod peer;
pub mod server;
pub mod socket;
pub mod stream;
pub mod upgrade;

pub use socket::{Link, Socket, is_timeout};

use std::io;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// Threads that wait for connections which no session has.
const WORKERS: usize = 2;

/// What drives connections that no session drives itself: those on their way in, and those whose other side takes its time.
pub fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(WORKERS).thread_name("network").enable_all().build()
    });
    made.as_ref().map_err(|e| io::Error::new(e.kind(), format!("no threads for the network: {e}")))
}
