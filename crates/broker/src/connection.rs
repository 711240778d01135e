//! One connection to a NATS server: a client of `async-nats` on a runtime of its own. Both end with the connection, so that
//! nothing that was asked on it is asked again on a later one.
//!
//! The runtime has one thread, that of [`Connection::run`]. Library panics, endless messages and silent
//! servers all end the connection, which the client then makes anew.

use crate::address::Address;
use async_nats::connection::State;
use async_nats::{Client, Event};
use futures_util::StreamExt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tapml_graph::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::{interval, timeout};

/// How long a connection may take, and an answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a silent connection is tried with a ping. The third that is not answered ends it.
const PING: Duration = Duration::from_secs(3);

// Servers limit messages to 1 MiB by default.
/// Most bytes that may come without a whole message among them: more than the largest message, and what comes behind it.
const WITHOUT_MESSAGE: u64 = 16 << 20;

/// How often it is looked how much has come.
const LOOK: Duration = Duration::from_millis(50);

/// See the module.
pub struct Connection {
    /// Dropped with the connection: its tasks end.
    runtime: Runtime,
    client: Client,
    /// Told when the connection is lost.
    lost: Arc<Notify>,
}

/// What other threads ask on a connection.
#[derive(Clone)]
pub struct Handle {
    runtime: tokio::runtime::Handle,
    client: Client,
}

impl Connection {
    /// Connects to a server and shows who this is.
    pub fn dial(address: &Address) -> std::result::Result<Connection, String> {
        let options = address.options().map_err(|e| e.to_string())?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let lost = Arc::new(Notify::new());
        let (connected, tell) = (Arc::new(AtomicBool::new(false)), lost.clone());
        let has_connected = connected.clone();
        let options = options
            .name("tapml")
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(CONNECT_TIMEOUT))
            .ping_interval(PING)
            // Other addresses of a cluster may not be reachable or trusted from here.
            .ignore_discovered_servers()
            // The library dials again by itself, and sends what has waited meanwhile. It never comes to that.
            .reconnect_delay_callback(move |_| {
                if has_connected.load(Ordering::Acquire) { Duration::MAX } else { Duration::ZERO }
            })
            .event_callback(move |event| {
                match event {
                    Event::Disconnected | Event::Closed => tell.notify_one(),
                    Event::ServerError(error) => log::warn!("the broker says: {}", printable(&error)),
                    Event::SlowConsumer(_) => log::warn!("the broker sends faster than can be read"),
                    _ => {}
                }
                std::future::ready(())
            });
        let url = address.url();
        // A task of its own: what a server says can make the library panic.
        let dialled = runtime.block_on(async {
            let dialled = tokio::spawn(async move { options.connect(url).await });
            timeout(2 * CONNECT_TIMEOUT, dialled).await
        });
        let client = match dialled {
            Ok(Ok(Ok(client))) => Ok(client),
            Ok(Ok(Err(error))) => Err(printable(&error)),
            Ok(Err(_)) => Err("what it says is no NATS".into()),
            Err(_) => Err(format!("it does not answer within {} s", 2 * CONNECT_TIMEOUT.as_secs())),
        };
        match client {
            Ok(client) => {
                connected.store(true, Ordering::Release);
                Ok(Connection { runtime, client, lost })
            }
            Err(error) => {
                // Does not wait for a blocking look-up.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// What other threads ask on it.
    pub fn handle(&self) -> Handle {
        Handle { runtime: self.runtime.handle().clone(), client: self.client.clone() }
    }

    /// Runs the connection until it is lost or stopped, and ends it; why it has ended.
    pub fn run(self, stop: &Notify) -> &'static str {
        let why = self.runtime.block_on(async {
            tokio::select! {
                () = stop.notified() => "it is not needed any more",
                () = self.lost.notified() => "the connection was lost",
                () = wait_for_end(&self.client) => "what it says is no NATS",
                () = wait_for_overflow(&self.client) => "it sends more than a message may have",
            }
        });
        // A look-up of a name that hangs is not waited for.
        self.runtime.shutdown_background();
        why
    }
}

/// What a server may have said, for a terminal.
fn printable(text: &dyn std::fmt::Display) -> String {
    text.to_string().escape_debug().take(200).collect()
}

/// Returns when the library's task has ended, by a panic for one: its subscriptions end with it.
async fn wait_for_end(client: &Client) {
    let Ok(mut nothing) = client.subscribe(client.new_inbox()).await else { return };
    while nothing.next().await.is_some() {}
}

/// Returns when more has come than a message may have. The library itself knows no bounds.
async fn wait_for_overflow(client: &Client) {
    let counts = client.statistics();
    let mut last = (0, 0);
    let mut look = interval(LOOK);
    while client.connection_state() != State::Disconnected {
        look.tick().await;
        let now = (counts.in_messages.load(Ordering::Relaxed), counts.in_bytes.load(Ordering::Relaxed));
        if now.0 != last.0 {
            last = now;
        } else if now.1.saturating_sub(last.1) > WITHOUT_MESSAGE {
            return;
        }
    }
    // Who waits for the connection's end is told of it.
    std::future::pending().await
}

impl Handle {
    /// Does this on the connection; `None` if that has ended before.
    pub fn call<T, F>(&self, work: impl FnOnce(Client) -> F) -> Option<Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (tell, told) = mpsc::sync_channel(1);
        let work = work(self.client.clone());
        self.spawn(async move {
            // Whoever asked has an answer, or its end, before it gives up.
            let _ = tell.send(work.await);
        });
        told.recv().ok()
    }

    /// Starts this on the connection. It is dropped when the connection ends.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> tokio::task::AbortHandle {
        self.runtime.spawn(work).abort_handle()
    }
}
