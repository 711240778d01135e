//! A connection to a NATS server that dials again when it breaks.

use crate::protocol::{self, Said};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tapml_graph::{Error, ErrorKind, Result};

/// How long a connection may take, and an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the connection is tried with a ping, and how long it may be silent.
const IDLE_TIMEOUT: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));

/// How long to wait before dialling again.
const AGAIN: Duration = Duration::from_millis(250);

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Where it was published.
    pub subject: String,
    /// Where an answer goes; empty if none is wanted.
    pub reply: String,
    /// Headers with their status line.
    pub headers: String,
    /// The message.
    pub payload: Vec<u8>,
}

impl Message {
    /// The status of a message without content, such as 404.
    pub fn status(&self) -> Option<u32> {
        self.headers.strip_prefix("NATS/1.0")?.split_whitespace().next()?.parse().ok()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Where a server is.
#[derive(Clone, Debug)]
struct ServerAddress {
    host: String,
    port: u16,
    user: String,
    password: String,
}

/// See the module.
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    places: Vec<ServerAddress>,
    /// The connection's writing side while there is one.
    out: Mutex<Option<TcpStream>>,
    subscriptions: Mutex<HashMap<u64, (String, mpsc::Sender<Message>)>>,
    next: AtomicU64,
    /// How often a connection was made.
    made: AtomicU64,
    inbox: String,
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Connects to `nats://[user:password@]host[:port]`, or to one of several, joined by commas. From here on the
    /// connection is made again whenever it breaks.
    pub fn connect(url: &str) -> Result<Client> {
        let places: Vec<ServerAddress> = url.split(',').map(place).collect::<Result<_>>()?;
        let mut random = [0u8; 12];
        getrandom::fill(&mut random).map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("the system gives no random numbers: {e}"))
        })?;
        let inbox = format!("_INBOX.{}", random.iter().map(|b| format!("{b:02x}")).collect::<String>());
        let inner = Arc::new(Inner {
            places,
            out: Mutex::default(),
            subscriptions: Mutex::default(),
            next: AtomicU64::new(1),
            made: AtomicU64::new(0),
            inbox,
            over: AtomicBool::new(false),
        });
        let reader = inner.dial().map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("no broker answers at {}: {e}", without_secret(url)))
                .with_hint("`nats-server -js` must run there; the address looks like nats://host:4222")
        })?;
        let own = inner.clone();
        let run = move || own.run(reader);
        std::thread::Builder::new().name("broker".into()).spawn(run).map_err(|e| unavailable(&e))?;
        Ok(Client { inner })
    }

    /// How often a connection was made: rises when one was lost and made again.
    pub fn connections(&self) -> u64 {
        self.inner.made.load(Ordering::Acquire)
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        lock(&self.inner.out).is_some()
    }

    /// Publishes a message with headers (`Name: value`), and where an answer shall go.
    pub fn publish(
        &self,
        subject: &str,
        reply: &str,
        headers: &[(&str, String)],
        payload: &[u8],
    ) -> Result<()> {
        let mut head = String::new();
        if !headers.is_empty() {
            head = "NATS/1.0\r\n".into();
            headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
            head += "\r\n";
        }
        let to = if reply.is_empty() { subject.to_string() } else { format!("{subject} {reply}") };
        let line = match head.len() {
            0 => format!("PUB {to} {}\r\n", payload.len()),
            n => format!("HPUB {to} {n} {}\r\n", n + payload.len()),
        };
        self.inner.write(&[line.as_bytes(), head.as_bytes(), payload, b"\r\n"].concat())
    }

    /// Publishes a message and waits for the answer.
    pub fn request(&self, subject: &str, headers: &[(&str, String)], payload: &[u8]) -> Result<Message> {
        let (inbox, told, sid) = self.subscribe_inbox()?;
        let answer = self.publish(subject, &inbox, headers, payload).and_then(|()| {
            told.recv_timeout(CONNECT_TIMEOUT).map_err(|_| unavailable(&"the broker does not answer"))
        });
        self.unsubscribe(sid);
        let answer = answer?;
        match answer.status() {
            Some(503) => Err(unavailable(&"the broker has no JetStream; start it by `nats-server -js`")),
            _ => Ok(answer),
        }
    }

    /// Asks JetStream's interface; its answer, or the error that it tells with its number (`err_code`).
    pub fn api(&self, what: &str, request: &Value) -> Result<std::result::Result<Value, u64>> {
        let payload = if request.is_null() { Vec::new() } else { request.to_string().into_bytes() };
        let answer = self.request(&format!("$JS.API.{what}"), &[], &payload)?;
        read_answer(&answer, what)
    }

    /// Keeps a message in a stream; its number there, or the error's number.
    pub fn keep(
        &self,
        subject: &str,
        headers: &[(&str, String)],
        payload: &[u8],
    ) -> Result<std::result::Result<u64, u64>> {
        let answer = self.request(subject, headers, payload)?;
        Ok(read_answer(&answer, subject)?.map(|kept| kept["seq"].as_u64().unwrap_or(0)))
    }

    /// Receives what is published there from now on, also after the connection was made again.
    pub fn subscribe(&self, subject: &str) -> Result<(mpsc::Receiver<Message>, u64)> {
        let sid = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = mpsc::channel();
        lock(&self.inner.subscriptions).insert(sid, (subject.into(), tell));
        self.inner
            .write(format!("SUB {subject} {sid}\r\n").as_bytes())
            .inspect_err(|_| self.unsubscribe(sid))?;
        Ok((told, sid))
    }

    /// A subject of this client's own, and what comes there.
    pub fn subscribe_inbox(&self) -> Result<(String, mpsc::Receiver<Message>, u64)> {
        let n = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let inbox = format!("{}.{n}", self.inner.inbox);
        self.subscribe(&inbox).map(|(told, sid)| (inbox, told, sid))
    }

    /// Receives no more of a subscription.
    pub fn unsubscribe(&self, sid: u64) {
        lock(&self.inner.subscriptions).remove(&sid);
        // Without a connection there is no subscription.
        let _ = self.inner.write(format!("UNSUB {sid}\r\n").as_bytes());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Release);
        if let Some(tcp) = lock(&self.inner.out).take() {
            let _ = tcp.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Inner {
    fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut out = lock(&self.out);
        let Some(tcp) = out.as_mut() else { return Err(unavailable(&"the broker is away")) };
        tcp.write_all(bytes).map_err(|e| {
            *out = None;
            unavailable(&e)
        })
    }

    /// Listens, and dials again, until the client is dropped.
    fn run(&self, mut reader: BufReader<TcpStream>) {
        loop {
            let how = self.listen(&mut reader);
            lock(&self.out).take();
            if self.over.load(Ordering::Acquire) {
                return;
            }
            log::warn!(
                "the broker is away ({}); dialling again",
                how.err().map_or("?".into(), |e| e.to_string())
            );
            reader = loop {
                std::thread::sleep(AGAIN);
                if self.over.load(Ordering::Acquire) {
                    return;
                }
                match self.dial() {
                    Ok(reader) => break reader,
                    Err(error) => log::debug!("the broker is away: {error}"),
                }
            };
            log::warn!("the broker is back");
        }
    }

    fn listen(&self, reader: &mut BufReader<TcpStream>) -> io::Result<()> {
        let (mut heard, mut pinged) = (Instant::now(), Instant::now());
        loop {
            // A read that found nothing in time must not have begun a line: so it looks first.
            match std::io::BufRead::fill_buf(reader) {
                Ok(_) => heard = Instant::now(),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if heard.elapsed() > IDLE_TIMEOUT.1 {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "it is silent"));
                    }
                    if pinged.elapsed() > IDLE_TIMEOUT.0 {
                        pinged = Instant::now();
                        self.write(b"PING\r\n").map_err(io::Error::other)?;
                    }
                    continue;
                }
                Err(e) => return Err(e),
            }
            reader.get_ref().set_read_timeout(Some(CONNECT_TIMEOUT))?;
            let said = protocol::read(reader)?;
            reader.get_ref().set_read_timeout(Some(Duration::from_secs(1)))?;
            match said {
                Said::Message { sid, subject, reply, headers, payload } => {
                    let tell = lock(&self.subscriptions).get(&sid).map(|(_, tell)| tell.clone());
                    // Who has stopped listening needs nothing.
                    let _ = tell.map(|tell| tell.send(Message { subject, reply, headers, payload }));
                }
                Said::Ping => self.write(b"PONG\r\n").map_err(io::Error::other)?,
                Said::Error(text) => log::warn!("the broker says: {text}"),
                Said::Pong | Said::Info(_) | Said::Ok => {}
            }
        }
    }

    /// Makes a connection with all subscriptions.
    fn dial(&self) -> io::Result<BufReader<TcpStream>> {
        let mut last = io::Error::other("no address");
        for place in &self.places {
            match self.dial_one(place) {
                Ok(reader) => return Ok(reader),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn dial_one(&self, place: &ServerAddress) -> io::Result<BufReader<TcpStream>> {
        let mut found = (place.host.as_str(), place.port).to_socket_addrs()?;
        let address = found.next().ok_or_else(|| io::Error::other("the host has no address"))?;
        let mut tcp = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        tcp.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        let mut reader = BufReader::new(tcp.try_clone()?);
        let Said::Info(info) = protocol::read(&mut reader)? else {
            return Err(io::Error::other("that is no NATS server"));
        };
        let info: Value = serde_json::from_str(&info).map_err(io::Error::other)?;
        if info["tls_required"] == true {
            return Err(io::Error::other("the server wants TLS, which is not spoken to brokers"));
        }
        let mut hello = json!({
            "verbose": false, "pedantic": false, "tls_required": false, "name": "tapml", "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "headers": true, "no_responders": true,
        });
        match (place.user.is_empty(), place.password.is_empty()) {
            (true, _) => {}
            (false, true) => hello["auth_token"] = place.user.clone().into(),
            (false, false) => {
                hello["user"] = place.user.clone().into();
                hello["pass"] = place.password.clone().into();
            }
        }
        tcp.write_all(format!("CONNECT {hello}\r\nPING\r\n").as_bytes())?;
        loop {
            match protocol::read(&mut reader)? {
                Said::Pong => break,
                Said::Error(text) => return Err(io::Error::other(text)),
                _ => {}
            }
        }
        tcp.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut out = lock(&self.out);
        for (sid, (subject, _)) in lock(&self.subscriptions).iter() {
            tcp.write_all(format!("SUB {subject} {sid}\r\n").as_bytes())?;
        }
        *out = Some(tcp);
        drop(out);
        self.made.fetch_add(1, Ordering::AcqRel);
        Ok(reader)
    }
}

fn read_answer(answer: &Message, what: &str) -> Result<std::result::Result<Value, u64>> {
    let value: Value = serde_json::from_slice(&answer.payload)
        .map_err(|e| unavailable(&format!("the broker's answer to {what} is no JSON: {e}")))?;
    match value.get("error") {
        None => Ok(Ok(value)),
        Some(error) => match error["err_code"].as_u64() {
            Some(code) => {
                log::debug!("the broker refuses {what}: {error}");
                Ok(Err(code))
            }
            None => Err(unavailable(&format!("the broker refuses {what}: {error}"))),
        },
    }
}

fn place(url: &str) -> Result<ServerAddress> {
    let bad = |what: &str| {
        Error::invalid(format!("broker `{}`: {what}", without_secret(url)))
            .with_hint("a broker's address looks like nats://host:4222")
    };
    let rest = url.trim().strip_prefix("nats://").ok_or_else(|| bad("expected nats://"))?;
    let rest = rest.trim_end_matches('/');
    let (secret, at) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (host, port) = match at.rsplit_once(':').filter(|_| !at.ends_with(']')) {
        Some((host, port)) => (host, port.parse().map_err(|_| bad(&format!("`{port}` is no port")))?),
        None => (at, 4222),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(bad("the host is missing"));
    }
    let (user, password) = secret.split_once(':').unwrap_or((secret, ""));
    Ok(ServerAddress { host: host.into(), port, user: user.into(), password: password.into() })
}

/// An address without its secret.
fn without_secret(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, at)| at)
}

/// The broker cannot do it now.
pub fn unavailable(why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("broker: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_host_port_and_secret() {
        let one = place("nats://u:p@lab:1").unwrap();
        assert_eq!(
            (one.host.as_str(), one.port, one.user.as_str(), one.password.as_str()),
            ("lab", 1, "u", "p")
        );
        assert_eq!(place("nats://[::1]").map(|p| (p.host, p.port)).unwrap(), ("::1".into(), 4222));
        for bad in ["lab", "nats://", "nats://h:x", "tls://h"] {
            assert!(place(bad).is_err(), "{bad}");
        }
        assert!(!place("x://secret@h").unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn a_message_tells_its_status_and_headers() {
        let headers = "NATS/1.0 404 No Messages\r\nKV-Operation: DEL\r\n\r\n".to_string();
        let m = Message { subject: String::new(), reply: String::new(), headers, payload: Vec::new() };
        assert_eq!((m.status(), m.header("kv-operation")), (Some(404), Some("DEL")));
    }
}
