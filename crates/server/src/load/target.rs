//! The server that a load is put on.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tapml_graph::{Error, ErrorKind, Result};
use tokio::net::TcpStream;

/// The server, as clients need it.
pub(super) struct LoadTarget {
    /// `HOST:PORT`.
    pub authority: String,
    /// In front of `/v1`.
    pub path: String,
    /// Shown to it.
    pub api_key: Option<String>,
    /// Asked for.
    pub model: String,
    /// How long a request may take.
    pub limit: Duration,
}

/// An error of the network, or of what came over it.
pub(super) fn io_error(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("{what}: {error}"))
}

impl LoadTarget {
    /// A request to the server.
    pub fn request(&self, method: &str, path: &str, body: String) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.path));
        request = request.header("host", &self.authority).header("content-type", "application/json");
        if let Some(key) = &self.api_key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        request.body(Full::new(Bytes::from(body))).map_err(|e| Error::invalid(format!("a request: {e}")))
    }

    /// A connection, which lives as long as its sender.
    pub async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.map_err(|e| {
            io_error(&format!("could not connect to {}", self.authority), e)
                .with_hint("start a server there, such as `tapml serve MODEL`")
        })?;
        stream.set_nodelay(true).map_err(|e| io_error("the connection", e))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|e| io_error("the connection", e))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Host with port, and path, of an address.
pub(super) fn parse_url(url: &str) -> Result<(String, String)> {
    let wrong = || {
        Error::invalid(format!("expected http://HOST:PORT, found `{url}`"))
            .with_hint("a server with TLS is measured behind its proxy, or on the host itself")
    };
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_once('/').map_or((rest, String::new()), |(a, p)| (a, format!("/{p}")));
    let path = path.trim_end_matches('/').trim_end_matches("/v1").to_string();
    if authority.is_empty() || authority.contains(['@', '?', '#', ' ']) {
        return Err(wrong());
    }
    // A host in brackets has colons of its own.
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok((if has_port { authority.to_string() } else { format!("{authority}:80") }, path))
}
