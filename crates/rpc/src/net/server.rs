//! The side that listens: accepts connections, speaks TLS and HTTP on them within bounds, and gives requests to routes.

use super::gate::{Gate, Waiting};
use super::peer::Peer;
use super::stream::{Stream, Tcp};
use super::upgrade::Arrival;
use crate::wire::limits::HANDSHAKE;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, watch};
use tokio::time::{timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsStream};

/// Longest head of a request, bytes.
const HEAD: usize = 8 << 10;

/// Most headers of a request.
const HEADERS: usize = 64;

/// How long an answer that is under way may take when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// A server.
pub struct Server<'a> {
    /// Where it listens.
    pub listener: &'a TcpListener,
    /// Bounds who has shown no token.
    pub gate: &'a Gate,
    /// Certificate and key; without, the connection is plain text.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// What answers requests.
    pub routes: Router,
    /// Set by a [`Stopper`].
    pub stop: &'a AtomicBool,
}

/// Ends an agent or a hub from another thread.
#[derive(Clone)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    address: Option<SocketAddr>,
}

impl Stopper {
    /// What sets this flag, and wakes who listens there.
    pub(crate) fn new(stop: Arc<AtomicBool>, address: Option<SocketAddr>) -> Stopper {
        Stopper { stop, address }
    }

    /// Ends all sessions, each with a post-mortem, and makes [`crate::agent::Agent::serve`] return; ends a hub.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let Some(mut address) = self.address else { return };
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }
}

impl Server<'_> {
    /// Serves until stopped, and until every WebSocket has been served to its end.
    pub fn serve(self) -> Result<()> {
        let runtime = super::runtime().map_err(|e| Error::new(ErrorKind::Unavailable, e.to_string()))?;
        let (open, mut all) = mpsc::channel(1);
        let (stopping, stopped) = watch::channel(false);
        while !self.stop.load(Ordering::Acquire) {
            let (tcp, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    log::warn!("could not accept a connection: {error}");
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            let peer = match Peer::from_accepted(tcp, HANDSHAKE) {
                Ok(peer) => Arc::new(peer),
                Err(error) => {
                    log::debug!("{from}: {error}");
                    continue;
                }
            };
            let place: Waiting = self.gate.knock(from.ip(), &peer);
            let place = Arc::new(Mutex::new(Some(place)));
            let arrival = Arrival { peer, from, place, open: open.clone() };
            let (tls, routes) = (self.tls.clone(), self.routes.clone());
            let serving = serve_connection(arrival, tls, routes, stopped.clone());
            runtime.spawn(async move {
                // Port scans and spare connections of browsers end here.
                if let Err(error) = serving.await {
                    log::debug!("{from}: {error}");
                }
            });
        }
        drop(open);
        // Nobody is left to be told if it fails.
        let _ = stopping.send(true);
        while all.blocking_recv().is_some() {}
        Ok(())
    }
}

/// Serves the one request of a connection. It must be answered, or its WebSocket be open, in time.
async fn serve_connection(
    arrival: Arrival,
    tls: Option<Arc<rustls::ServerConfig>>,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let until = arrival.peer.deadline().unwrap_or_else(Instant::now).into();
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let tcp = Tcp::new(arrival.peer.clone())?;
    let stream = match tls {
        None => Stream::Plain(tcp),
        Some(config) => {
            let tls = timeout_at(until, TlsAcceptor::from(config).accept(tcp)).await.map_err(late)??;
            Stream::Tls(Box::new(TlsStream::Server(tls)))
        }
    };
    let routes = routes.layer(map_response(end_after)).layer(Extension(arrival));
    let service = TowerToHyperService::new(routes);
    let mut builder = http1::Builder::new();
    builder.half_close(true).max_buf_size(HEAD).max_headers(HEADERS);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let served = tokio::select! {
        served = timeout_at(until, connection.as_mut()) => served.map_err(late)?,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            timeout(STOP_GRACE, connection).await.map_err(late)?
        }
    };
    served.map_err(io::Error::other)
}

/// A connection has one request.
async fn end_after(mut response: Response) -> Response {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The first address that a name and port stand for.
fn resolve(address: &str) -> Result<SocketAddr> {
    let found = address.to_socket_addrs().map_err(|e| not_listening(address, &e))?.next();
    found.ok_or_else(|| Error::invalid(format!("`{address}` is no address")))
}

/// It was not possible to listen there.
fn not_listening(address: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("could not listen at {address}: {error}"))
}

/// Listens at an address such as `127.0.0.1:7000`; port 0 chooses one. Fails where other machines can connect, unless there is a
/// token, and TLS or the user's word that none is needed.
pub fn listen(address: &str, token: bool, sealed: bool) -> Result<(TcpListener, SocketAddr)> {
    let found = resolve(address)?;
    check_policy(&found, token, sealed)?;
    let listener = TcpListener::bind(found).map_err(|e| not_listening(address, &e))?;
    let address = listener.local_addr().map_err(|e| not_listening(address, &e))?;
    Ok((listener, address))
}

fn check_policy(address: &SocketAddr, token: bool, sealed: bool) -> Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if !token {
        return Err(Error::invalid(format!("other machines can connect to {address}: a token is required"))
            .with_hint("name a file with --token-file; it is made if it does not exist"));
    }
    if !sealed {
        return Err(Error::invalid(format!(
            "other machines can connect to {address}: plain text would show them the token and all data"
        ))
        .with_hint("give --tls-cert and --tls-key, or --insecure on a network that you trust"));
    }
    Ok(())
}
