//! From an address to an open connection: TCP, TLS, the WebSocket's handshake.

use super::address::Address;
use crate::net::peer::Peer;
use crate::net::socket::{Socket, config, is_late};
use crate::net::stream::{Stream, Tcp};
use crate::wire::limits::{HANDSHAKE, PROTOCOL};
use rustls::pki_types::ServerName;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tapml_graph::{Error, ErrorKind, Result};
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, TlsStream};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::Request;
use tungstenite::http::HeaderValue;

/// How long a read waits before the caller looks around.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Pauses before a connection is tried again that was closed before anything was said on it: an agent that strangers besiege
/// may have no place for a moment.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(80), Duration::from_millis(320)];

/// How long the agent may take no byte of what is sent to it, unless it is expected to answer sooner.
const SLOW: Duration = Duration::from_secs(60);

/// Why there is no connection.
enum ConnectRefusal {
    /// The other side has closed before it had answered: it may have had no place at that moment.
    Dropped(Error),
    Other(Error),
}

impl From<Error> for ConnectRefusal {
    fn from(error: Error) -> ConnectRefusal {
        ConnectRefusal::Other(error)
    }
}

/// Opens a session's connection. Fails with [`ErrorKind::Unavailable`] if nobody answers.
pub fn connect(address: &Address) -> Result<Socket> {
    let mut pauses = AGAIN.into_iter();
    let mut socket = loop {
        match (dial(address, "", PROTOCOL, "agent"), pauses.next()) {
            (Ok(socket), _) => break socket,
            (Err(ConnectRefusal::Dropped(_)), Some(pause)) => std::thread::sleep(pause),
            (Err(ConnectRefusal::Dropped(error) | ConnectRefusal::Other(error)), _) => return Err(error),
        }
    };
    socket.let_in(POLL_INTERVAL);
    socket.widen();
    socket.link().peer().expect_within(SLOW);
    Ok(socket)
}

/// Dials a path of a hub. What comes first there must come in time.
pub fn dial_hub(address: &Address, path: &str, protocol: &'static str) -> Result<Socket> {
    match dial(address, path, protocol, "hub") {
        Ok(socket) => Ok(socket),
        Err(ConnectRefusal::Dropped(error) | ConnectRefusal::Other(error)) => Err(error),
    }
}

fn dial(
    address: &Address,
    path: &str,
    protocol: &'static str,
    who: &str,
) -> std::result::Result<Socket, ConnectRefusal> {
    let url = format!("{}://{}/{path}", if address.tls { "wss" } else { "ws" }, address.place());
    let request = url.as_str().into_client_request();
    let mut request = request.map_err(|e| Error::invalid(format!("`{url}` is no address: {e}")))?;
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    // All is ready before the connection is made: who says nothing at first is the first to be closed.
    let tls = address.tls.then(|| tls(address)).transpose()?;
    let io = |e: io::Error| unavailable(address, &e.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io)?;
    let peer = Arc::new(Peer::from_dialled(tcp(address)?, HANDSHAKE).map_err(io)?);
    let open = open(address, who, tls, &peer, request);
    let opened = runtime.block_on(async { timeout(HANDSHAKE, open).await });
    let socket = opened.unwrap_or_else(|_| Err(unavailable(address, &late()).into()))?;
    Ok(Socket::new(socket, peer, Some(runtime)).1)
}

/// The handshakes.
async fn open(
    address: &Address,
    who: &str,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    peer: &Arc<Peer>,
    request: Request,
) -> std::result::Result<WebSocketStream<Stream>, ConnectRefusal> {
    let tcp = Tcp::new(peer.clone()).map_err(|e| unavailable(address, &e.to_string()))?;
    let stream = match tls {
        None => Stream::Plain(tcp),
        Some((connector, name)) => {
            let tls = connector.connect(name, tcp).await.map_err(|e| insecure(address, who, &e))?;
            Stream::Tls(Box::new(TlsStream::Client(tls)))
        }
    };
    let opened = client_async_with_config(request, stream, Some(config())).await;
    opened.map(|(socket, _)| socket).map_err(|e| {
        let dropped = has_ended(&e);
        let error = unavailable(address, &handshake_failure(who, &e));
        if dropped { ConnectRefusal::Dropped(error) } else { ConnectRefusal::Other(error) }
    })
}

/// Opens a TCP connection.
fn tcp(address: &Address) -> Result<TcpStream> {
    let found = (address.host.as_str(), address.port).to_socket_addrs();
    let found = found.map_err(|e| unavailable(address, &e.to_string()))?;
    let mut last = None;
    for place in found {
        match TcpStream::connect_timeout(&place, HANDSHAKE) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = Some(error),
        }
    }
    Err(unavailable(address, &last.map_or("the host has no address".into(), |e| e.to_string())))
}

/// TLS towards an address, before its handshake.
fn tls(address: &Address) -> Result<(TlsConnector, ServerName<'static>)> {
    let name = ServerName::try_from(address.host.clone())
        .map_err(|_| Error::invalid(format!("`{}` is no host name", address.host)))?;
    Ok((crate::tls::client(address.ca.as_deref())?.into(), name))
}

/// Why there is no TLS.
fn insecure(address: &Address, who: &str, error: &io::Error) -> ConnectRefusal {
    if is_end(error) {
        return ConnectRefusal::Dropped(unavailable(address, &ended_message(who)));
    }
    let text = format!("the TLS handshake failed: {error}");
    ConnectRefusal::Other(unavailable(address, &text).with_hint(format!(
        "for {} with a certificate of its own, give a copy of it: option `ca=FILE`; plain text is ws://",
        if who == "hub" { "a hub" } else { "an agent" },
    )))
}

/// Why a WebSocket's handshake has failed.
fn handshake_failure(who: &str, error: &tungstenite::Error) -> String {
    match error {
        tungstenite::Error::Io(e) if is_late(e) => late(),
        error if has_ended(error) => ended_message(who),
        error => format!("no {who} answers there: {error}"),
    }
}

fn ended_message(who: &str) -> String {
    format!("the connection ended before the {who} had answered")
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn has_ended(error: &tungstenite::Error) -> bool {
    use tungstenite::error::{Error, ProtocolError};
    match error {
        Error::Protocol(broken) => matches!(broken, ProtocolError::HandshakeIncomplete),
        Error::Io(e) => is_end(e),
        other => matches!(other, Error::ConnectionClosed),
    }
}

fn late() -> String {
    let time = HANDSHAKE.as_secs();
    format!("it takes connections and has said nothing for {time} s: the program there hangs, or is another")
}

/// Nobody answers there as expected.
fn unavailable(address: &Address, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{}: {why}", address.place())).with_hint(if address.hub {
        "is `tapml device hub` running there? The variable TAPML_HUB or the option `hub=URL` names another"
    } else {
        "is `tapml device serve` running there?"
    })
}
