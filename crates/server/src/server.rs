//! The side that listens: connections are accepted within bounds, and requests in progress end in order when the server stops.

use crate::connection::ClientConnection;
use crate::options::ServerOptions;
use crate::routes::routes;
use crate::served::ServedModel;
use crate::state::ServerState;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tapml_graph::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

/// Threads that speak with clients; the engine has its own.
const WORKERS: usize = 2;
/// Longest head of a request, bytes.
const HEAD: usize = 16 << 10;
/// Most headers of a request.
const HEADERS: usize = 64;
/// How long answers that tell of a failed request may take when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long to wait where no connection can be accepted, such as for want of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server that listens.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
    stop: watch::Sender<bool>,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct ServerStopper(watch::Sender<bool>);

impl ServerStopper {
    /// The server takes no more requests, lets those in progress end within the grace time, and returns.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

fn listen(address: &str) -> Result<(TcpListener, SocketAddr)> {
    let failed = |e: io::Error| {
        let text = format!("could not listen at {address}: {e}");
        Error::new(ErrorKind::Io, text)
            .with_hint("choose another address with --host and --port; port 0 is any free one")
    };
    let found = address.to_socket_addrs().map_err(failed)?.next();
    let found = found.ok_or_else(|| Error::invalid(format!("`{address}` is no address")))?;
    let listener = TcpListener::bind(found).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

impl HttpServer {
    /// Listens at an address such as `127.0.0.1:8080`; port 0 chooses one.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub fn bind(address: &str, model: ServedModel, options: ServerOptions) -> Result<HttpServer> {
        let (listener, address) = listen(address)?;
        let state = Arc::new(ServerState::new(model, options));
        Ok(HttpServer { listener, address, state, stop: watch::Sender::new(false) })
    }

    /// Finds out whether an address can be listened at; it is free again afterwards.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check_address(address: &str) -> Result<()> {
        listen(address).map(drop)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    pub fn stopper(&self) -> ServerStopper {
        ServerStopper(self.stop.clone())
    }

    /// Serves until stopped. What goes wrong with one connection concerns that one alone.
    ///
    /// # Errors
    /// If no threads can be started.
    pub fn serve(self) -> Result<()> {
        let runtime = runtime().map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("could not start the threads of the server: {e}"))
        })?;
        let served = runtime.block_on(self.run());
        runtime.shutdown_timeout(LAST_WORDS);
        served.map_err(|e| Error::new(ErrorKind::Io, format!("could not listen: {e}")))
    }

    async fn run(self) -> io::Result<()> {
        let HttpServer { listener, state, stop, .. } = self;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (open, mut all) = mpsc::channel::<()>(1);
        let mut stopped = stop.subscribe();
        accept(listener, &state, &open, &mut stopped).await;
        drop(open);
        state.stop();
        let grace = state.options.grace;
        if timeout(grace, all.recv()).await.is_err() {
            log::warn!(
                "requests that did not end within {} s are told that the server ends",
                grace.as_secs()
            );
        }
        let ending = state.clone();
        // It waits for the step that runs.
        let engine = tokio::task::spawn_blocking(move || ending.model.shut_down());
        let _ = timeout(LAST_WORDS, all.recv()).await;
        let _ = timeout(LAST_WORDS, engine).await;
        Ok(())
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(WORKERS).thread_name("server").enable_all().build()
}

/// Accepts connections until stopped.
async fn accept(
    listener: tokio::net::TcpListener,
    state: &Arc<ServerState>,
    open: &mpsc::Sender<()>,
    stopped: &mut watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(state.options.max_connections.min(Semaphore::MAX_PERMITS)));
    let routes = routes(state.clone());
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = wait_until_stopped(stopped) => return,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log::warn!("could not accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Tokens are small, and each is wanted at once.
        let _ = tcp.set_nodelay(true);
        let connection = ClientConnection::new(tcp, state.options.write_timeout);
        let serving =
            serve_connection(connection, routes.clone(), state.options.read_timeout, stopped.clone());
        let open = open.clone();
        tokio::spawn(async move {
            let _open = (open, place);
            if let Err(error) = serving.await {
                log::debug!("{from}: {error}");
            }
        });
    }
}

/// Serves the requests of a connection, until stopped no more than the one in progress.
async fn serve_connection(
    connection: ClientConnection,
    routes: Router,
    head_timeout: Duration,
    mut stopped: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD)
        .max_headers(HEADERS);
    let service = TowerToHyperService::new(routes);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(connection), service));
    tokio::select! {
        served = serving.as_mut() => served,
        () = wait_until_stopped(&mut stopped) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    }
}

/// Returns when the server is to end.
async fn wait_until_stopped(stopped: &mut watch::Receiver<bool>) {
    // A server that is gone has stopped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
