//! From an address to an open connection: TCP, TLS, the WebSocket's handshake.

use super::address::Address;
use crate::awake::Alert;
use crate::wire::limits::{HANDSHAKE, MAX_MESSAGE, PROTOCOL};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::WebSocket;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::{HandshakeError, HandshakeRole};
use tungstenite::http::HeaderValue;
use tungstenite::protocol::WebSocketConfig;

/// How long a read or a write waits before the caller looks around.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Pauses before a connection is tried again that was closed before anything was said on it: an agent that strangers besiege
/// may have no place for a moment.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(80), Duration::from_millis(320)];

/// How long the agent may take no byte of what is sent to it, unless it is expected to answer sooner.
const SLOW: Duration = Duration::from_secs(60);

/// TCP whose other side may be slow, but not for ever.
pub struct Patient {
    tcp: Alert<TcpStream>,
    /// How long the other side may take no byte.
    slow: Duration,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp.read(buffer)
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let start = Instant::now();
        loop {
            match self.tcp.write(bytes) {
                Err(e) if is_late(&e) && start.elapsed() < self.slow => {}
                done => return done,
            }
            // The system may keep what is written for one that has closed and says no more.
            if matches!(self.tcp.stream.peek(&mut [0]), Ok(0)) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// TCP, or TLS on top of it.
pub enum Stream {
    /// Plain text.
    Plain(Patient),
    /// TLS.
    Tls(Box<StreamOwned<ClientConnection, Patient>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(patient) => &patient.tcp.stream,
            Stream::Tls(tls) => &tls.sock.tcp.stream,
        }
    }

    /// How long the agent may take no byte of what is sent to it from here on.
    pub fn expect_within(&mut self, time: Duration) {
        match self {
            Stream::Plain(patient) => patient.slow = time,
            Stream::Tls(tls) => tls.sock.slow = time,
        }
    }

    /// Ends the connection in both directions.
    pub fn end(&self) {
        // It may have ended.
        let _ = self.tcp().shutdown(std::net::Shutdown::Both);
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(tcp) => tcp.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

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

/// Opens the connection. Fails with [`ErrorKind::Unavailable`] if nobody answers.
pub fn connect(address: &Address) -> Result<WebSocket<Stream>> {
    let mut pauses = AGAIN.into_iter();
    loop {
        match (dial(address), pauses.next()) {
            (Ok(socket), _) => return Ok(socket),
            (Err(ConnectRefusal::Dropped(_)), Some(pause)) => std::thread::sleep(pause),
            (Err(ConnectRefusal::Dropped(error) | ConnectRefusal::Other(error)), _) => return Err(error),
        }
    }
}

fn dial(address: &Address) -> std::result::Result<WebSocket<Stream>, ConnectRefusal> {
    let url = format!("{}://{}/", if address.tls { "wss" } else { "ws" }, address.place());
    let request = url.as_str().into_client_request();
    let mut request = request.map_err(|e| Error::invalid(format!("`{url}` is no address: {e}")))?;
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(PROTOCOL));
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .read_buffer_size(256 << 10);
    // All is ready before the connection is made: who says nothing at first is the first to be closed.
    let tls = address.tls.then(|| tls(address)).transpose()?;
    let tcp = self::tcp(address)?;
    let io = |e: io::Error| unavailable(address, &e.to_string());
    tcp.set_nodelay(true).map_err(io)?;
    tcp.set_read_timeout(Some(HANDSHAKE)).map_err(io)?;
    tcp.set_write_timeout(Some(POLL_INTERVAL)).map_err(io)?;
    let stream = match tls {
        None => Stream::Plain(Patient { tcp: Alert::new(tcp), slow: SLOW }),
        Some(tls) => Stream::Tls(Box::new(secure(address, tls, tcp)?)),
    };
    let (socket, _) =
        tungstenite::client::client_with_config(request, stream, Some(config)).map_err(|e| {
            let dropped = matches!(&e, HandshakeError::Failure(error) if has_ended(error));
            let error = unavailable(address, &handshake_failure("agent", e));
            if dropped { ConnectRefusal::Dropped(error) } else { ConnectRefusal::Other(error) }
        })?;
    socket.get_ref().tcp().set_read_timeout(Some(POLL_INTERVAL)).map_err(io)?;
    Ok(socket)
}

/// Opens a TCP connection.
pub fn tcp(address: &Address) -> Result<TcpStream> {
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
pub fn tls(address: &Address) -> Result<ClientConnection> {
    let name = ServerName::try_from(address.host.clone())
        .map_err(|_| Error::invalid(format!("`{}` is no host name", address.host)))?;
    let config = crate::tls::client(address.ca.as_deref())?;
    ClientConnection::new(config, name).map_err(|e| Error::bug(format!("TLS: {e}")))
}

fn secure(
    address: &Address,
    mut tls: ClientConnection,
    mut tcp: TcpStream,
) -> std::result::Result<StreamOwned<ClientConnection, Patient>, ConnectRefusal> {
    while tls.is_handshaking() {
        let done = tls.complete_io(&mut tcp);
        done.map_err(|e| match e {
            e if is_late(&e) => ConnectRefusal::Other(unavailable(address, &late())),
            e if is_end(&e) => ConnectRefusal::Dropped(unavailable(address, &ended_message("agent"))),
            e => ConnectRefusal::Other(unavailable(address, &format!("the TLS handshake failed: {e}")).with_hint(
                "for an agent with a certificate of its own, give a copy of it: option `ca=FILE`; plain text is ws://",
            )),
        })?;
    }
    Ok(StreamOwned::new(tls, Patient { tcp: Alert::new(tcp), slow: SLOW }))
}

/// Why a WebSocket's handshake has failed.
pub fn handshake_failure<R: HandshakeRole>(who: &str, error: HandshakeError<R>) -> String {
    match error {
        HandshakeError::Interrupted(_) => late(),
        HandshakeError::Failure(tungstenite::Error::Io(e)) if is_late(&e) => late(),
        HandshakeError::Failure(error) if has_ended(&error) => ended_message(who),
        HandshakeError::Failure(error) => format!("no {who} answers there: {error}"),
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

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn late() -> String {
    let time = HANDSHAKE.as_secs();
    format!("it takes connections and has said nothing for {time} s: the program there hangs, or is another")
}

/// Nobody answers there as expected.
pub fn unavailable(address: &Address, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{}: {why}", address.place())).with_hint(if address.hub {
        "is `tapml device hub` running there? The variable TAPML_HUB or the option `hub=URL` names another"
    } else {
        "is `tapml device serve` running there?"
    })
}
