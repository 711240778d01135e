//! What comes first on a connection to a hub: an HTTP request, for a page or for a WebSocket.

use crate::agent::link::Reader;
use crate::wire::limits::MAX_HELLO;
use std::io::{Read, Write};
use std::net::IpAddr;
use tapml_graph::{Error, ErrorKind, Result};
use tungstenite::WebSocket;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::{Role, WebSocketConfig};

/// Longest head of a request, bytes.
const HEAD: usize = 8 << 10;

/// Most headers of a request.
const HEADERS: usize = 64;

/// A page by its path: its type and its bytes.
pub type Page = (&'static str, &'static str, &'static [u8]);

/// A request's head.
#[derive(Debug, Default)]
pub struct Head {
    /// The path, without what follows `?`.
    pub path: String,
    /// The key of a WebSocket's handshake.
    key: Option<String>,
    origin: Option<String>,
    host: String,
    protocols: Vec<String>,
    /// Bytes that came after the head.
    rest: Vec<u8>,
}

impl Head {
    /// Reads a head.
    pub fn read(from: &mut impl Read) -> Result<Head> {
        let mut bytes = Vec::new();
        let mut piece = [0; 1024];
        loop {
            let have = from.read(&mut piece).map_err(|e| lost_error(&e))?;
            bytes.extend_from_slice(&piece[..have]);
            if let Some(head) = Head::parse(&bytes)? {
                return Ok(head);
            }
            if have == 0 || bytes.len() > HEAD {
                return Err(Error::invalid(format!("no HTTP request of at most {HEAD} bytes")));
            }
        }
    }

    /// The head, if it has all come.
    fn parse(bytes: &[u8]) -> Result<Option<Head>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(bytes).map_err(|e| Error::invalid(format!("no HTTP request: {e}")))?;
        let httparse::Status::Complete(len) = parsed else { return Ok(None) };
        if request.method != Some("GET") {
            return Err(Error::invalid("the only method here is GET"));
        }
        let path = request.path.unwrap_or("/").split('?').next().unwrap_or("/").to_string();
        let mut head = Head { path, rest: bytes[len..].to_vec(), ..Head::default() };
        let mut upgrade = false;
        for header in request.headers.iter() {
            let value = String::from_utf8_lossy(header.value).trim().to_string();
            match header.name.to_ascii_lowercase().as_str() {
                "upgrade" => upgrade = value.eq_ignore_ascii_case("websocket"),
                "sec-websocket-key" => head.key = Some(value),
                "sec-websocket-protocol" => {
                    head.protocols.extend(value.split(',').map(|p| p.trim().to_string()));
                }
                "origin" => head.origin = Some(value),
                "host" => head.host = value,
                _ => {}
            }
        }
        if !upgrade {
            head.key = None;
        }
        Ok(Some(head))
    }

    /// Whether a WebSocket is asked for.
    pub fn is_upgrade(&self) -> bool {
        self.key.is_some()
    }

    /// Whether a page of this origin may connect: none (no page), one that is allowed, or one that the hub itself has served.
    /// Without a token, the hub's name must be one that no foreign name server can give to another site.
    pub fn may_connect(&self, allowed: &[String], token: bool) -> bool {
        let Some(origin) = &self.origin else { return true };
        let own = origin.split_once("://").is_some_and(|(_, authority)| authority == self.host);
        let host = self.host.rsplit_once(':').map_or(self.host.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let fixed = host == "localhost" || host.parse::<IpAddr>().is_ok();
        allowed.iter().any(|a| a == origin) || own && (token || fixed)
    }

    /// Answers the handshake with this subprotocol, if the other side offers it.
    pub fn upgrade(self, mut reader: Reader, protocol: &str) -> Result<WebSocket<Reader>> {
        let key = self.key.ok_or_else(|| Error::invalid("no WebSocket handshake"))?;
        let accept = derive_accept_key(key.as_bytes());
        let chosen = if self.protocols.iter().any(|p| p == protocol) {
            format!("Sec-WebSocket-Protocol: {protocol}\r\n")
        } else {
            String::new()
        };
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n{chosen}\r\n"
        );
        reader.write_all(answer.as_bytes()).map_err(|e| lost_error(&e))?;
        let config =
            WebSocketConfig::default().max_message_size(Some(MAX_HELLO)).max_frame_size(Some(MAX_HELLO));
        Ok(WebSocket::from_partially_read(reader, self.rest, Role::Server, Some(config)))
    }
}

/// Answers with a page.
pub fn page(reader: &mut Reader, pages: &[Page], path: &str) -> Result<()> {
    match pages.iter().find(|(at, ..)| *at == path) {
        Some((_, kind, body)) => answer(reader, "200 OK", kind, body),
        None if path == "/" => answer(reader, "200 OK", "text/plain", b"a hub of TapML devices\n"),
        None => refuse(reader, "404 Not Found", "there is nothing here"),
    }
}

/// Answers with a status and a sentence.
pub fn refuse(reader: &mut Reader, status: &str, text: &str) -> Result<()> {
    answer(reader, status, "text/plain", format!("{text}\n").as_bytes())
}

fn answer(reader: &mut Reader, status: &str, kind: &str, body: &[u8]) -> Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    reader.write_all(head.as_bytes()).and_then(|()| reader.write_all(body)).map_err(|e| lost_error(&e))
}

fn lost_error(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the other side is gone: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(origin: &str, host: &str) -> Head {
        let text = format!(
            "GET /agent?x=1 HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nUpgrade: WebSocket\r\n\
             Sec-WebSocket-Key: abc\r\nSec-WebSocket-Protocol: a, tapml.hub.v1\r\n\r\nrest"
        );
        Head::read(&mut text.as_bytes()).unwrap()
    }

    #[test]
    fn heads_are_read_and_bounded() {
        let read = head("http://h:1", "h:1");
        assert_eq!((read.path.as_str(), read.rest.as_slice()), ("/agent", b"rest".as_slice()));
        assert!(read.is_upgrade() && read.protocols == ["a", "tapml.hub.v1"]);
        assert!(!Head::read(&mut b"GET / HTTP/1.1\r\n\r\n".as_slice()).unwrap().is_upgrade());
        assert!(Head::read(&mut b"POST / HTTP/1.1\r\n\r\n".as_slice()).is_err());
        assert!(Head::read(&mut b"GET / HT".as_slice()).is_err(), "cut off");
        assert!(Head::read(&mut [0xffu8; 100].as_slice()).is_err());
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2 * HEAD));
        assert!(Head::read(&mut long.as_bytes()).is_err());
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert!(Head::read(&mut many.as_bytes()).is_err());
    }

    #[test]
    fn pages_of_other_sites_may_not_connect() {
        let may = |origin, host, token| head(origin, host).may_connect(&["https://ok".into()], token);
        assert!(may("https://ok", "h:1", false));
        assert!(may("http://127.0.0.1:7071", "127.0.0.1:7071", false));
        assert!(may("http://[::1]:7071", "[::1]:7071", false));
        assert!(may("http://localhost:7071", "localhost:7071", false));
        assert!(may("https://lab:7071", "lab:7071", true));
        assert!(!may("https://lab:7071", "lab:7071", false), "another name server could say so too");
        assert!(!may("http://evil", "127.0.0.1:7071", true));
    }
}
