//! From an HTTP request to a WebSocket, and to the thread that serves it.

use super::gate::Waiting;
use super::peer::Peer;
use super::socket::{Socket, config};
use super::stream::Stream;
use axum::body::Body;
use axum::extract::OptionalFromRequestParts;
use axum::http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use axum::http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tungstenite::handshake::server::create_response_with_body;
use tungstenite::protocol::Role;

/// A connection as its requests see it.
#[derive(Clone)]
pub struct Arrival {
    /// The other side.
    pub peer: Arc<Peer>,
    /// Where it is.
    pub from: SocketAddr,
    /// Its place among those who have shown nothing yet, which goes to the WebSocket.
    pub place: Arc<Mutex<Option<Waiting>>>,
    /// Kept by whoever serves it.
    pub open: mpsc::Sender<()>,
}

/// An open WebSocket whose other side has said nothing yet.
pub struct OpenSocket {
    /// The WebSocket.
    pub socket: Socket,
    /// Where the other side is.
    pub from: SocketAddr,
    /// Its place among those who have shown nothing yet.
    pub place: Option<Waiting>,
}

/// A request for a WebSocket.
pub struct Upgrade {
    arrival: Arrival,
    answer: tungstenite::Result<Response>,
    on: OnUpgrade,
    /// The page that asks, if it is one.
    pub origin: Option<HeaderValue>,
    /// What it calls this side.
    pub host: String,
    protocols: Vec<String>,
}

impl<S: Sync> OptionalFromRequestParts<S> for Upgrade {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Upgrade>, Infallible> {
        let headers = &parts.headers;
        let asks = text(headers, UPGRADE).eq_ignore_ascii_case("websocket");
        // A browser that opens the same path as a page asks for no WebSocket.
        if !asks || !headers.contains_key(SEC_WEBSOCKET_KEY) {
            return Ok(None);
        }
        let extensions = &parts.extensions;
        let (arrival, on) = (extensions.get::<Arrival>(), extensions.get::<OnUpgrade>());
        let (Some(arrival), Some(on)) = (arrival.cloned(), on.cloned()) else { return Ok(None) };
        let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|h| h.to_str().ok());
        let protocols = offered.flat_map(|h| h.split(',')).map(|p| p.trim().to_string()).collect();
        let (origin, host) = (headers.get(ORIGIN).cloned(), text(headers, HOST).to_string());
        let answer = create_response_with_body(&Request::from_parts(parts.clone(), ()), Body::empty);
        Ok(Some(Upgrade { arrival, answer, on, origin, host, protocols }))
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

impl Upgrade {
    /// The answer that opens the WebSocket, with this subprotocol if the other side offers it. A thread of its own serves it.
    pub fn accept(self, protocol: &'static str, serve: impl FnOnce(OpenSocket) + Send + 'static) -> Response {
        let mut answer = match self.answer {
            Ok(answer) => answer,
            Err(error) => {
                return refuse(StatusCode::BAD_REQUEST, &format!("no WebSocket handshake: {error}"));
            }
        };
        // A browser closes a connection whose answer names a protocol that it has not offered.
        if self.protocols.iter().any(|offered| offered == protocol) {
            answer.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        let Arrival { peer, from, place, open } = self.arrival;
        let place = place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let on = self.on;
        tokio::spawn(async move {
            let opened = match open_socket(on, peer).await {
                Ok(socket) => OpenSocket { socket, from, place },
                Err(error) => return log::debug!("{from}: {error}"),
            };
            // Sessions block on devices, so that they must not take a worker of the runtime.
            let serve = move || {
                serve(opened);
                drop(open);
            };
            if let Err(error) = std::thread::Builder::new().name("connection".into()).spawn(serve) {
                log::warn!("could not start a thread: {error}");
            }
        });
        answer
    }
}

/// The WebSocket, once the other side has been answered.
async fn open_socket(on: OnUpgrade, peer: Arc<Peer>) -> io::Result<Socket> {
    let opened = on.await.map_err(io::Error::other)?;
    let parts = opened.downcast::<TokioIo<Stream>>();
    let parts = parts.map_err(|_| io::Error::other("another connection than the one that was accepted"))?;
    // Bytes that came with the request are the WebSocket's first.
    let (stream, have) = (parts.io.into_inner(), parts.read_buf.to_vec());
    let socket = WebSocketStream::from_partially_read(stream, have, Role::Server, Some(config())).await;
    Ok(Socket::new(socket, peer, None).1)
}

/// A status and a sentence.
pub fn refuse(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}
