//! A small client of HTTP/1.1: one request on a connection.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer waits are failures.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// The body of a refusal, which has the fields that clients expect.
    #[track_caller]
    pub fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        let error = self.json()["error"].clone();
        let fields: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(fields.starts_with(&["message", "type", "param", "code"]), "{error}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        error
    }

    /// The error of a refusal in the form of Anthropic.
    #[track_caller]
    pub fn anthropic_error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        let body = self.json();
        let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            (&body["type"], fields(&body)),
            (&Value::from("error"), vec!["type".into(), "error".into()])
        );
        assert_eq!(fields(&body["error"]), ["type", "message"], "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        body["error"].clone()
    }

    /// The events of a stream whose events have names, which their field `type` has too.
    #[track_caller]
    pub fn named_events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body.split_terminator("\n\n").map(|event| read_named(event).1).collect()
    }

    /// The events of a stream, of which the last is `[DONE]`.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        let mut events: Vec<&str> = self.body.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{}", self.body);
        let json = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        events.into_iter().map(json).collect()
    }
}

/// An event with its name.
fn read_named(event: &str) -> (String, Value) {
    let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["type"], name);
    (name.into(), data)
}

/// A connection whose response has begun.
pub struct Opened {
    pub status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    /// What came of the body and was not taken.
    body: String,
}

impl Opened {
    fn is_chunked(&self) -> bool {
        self.headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked")
    }

    /// Reads the next chunk; false if it was the last.
    fn read_chunk(&mut self) -> bool {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let mut chunk = vec![0; length + 2];
        self.reader.read_exact(&mut chunk).unwrap();
        self.body.push_str(std::str::from_utf8(&chunk[..length]).unwrap());
        length > 0
    }

    /// The next event of a stream.
    pub fn event(&mut self) -> String {
        self.next_event().strip_prefix("data: ").unwrap().to_string()
    }

    /// The next event of a stream whose events have names.
    pub fn named_event(&mut self) -> (String, Value) {
        read_named(&self.next_event())
    }

    fn next_event(&mut self) -> String {
        loop {
            if let Some((event, rest)) = self.body.split_once("\n\n") {
                let event = event.to_string();
                self.body = rest.to_string();
                return event;
            }
            assert!(self.read_chunk(), "the stream has ended");
        }
    }

    /// The rest of the body.
    pub fn rest(mut self) -> Reply {
        if self.is_chunked() {
            while self.read_chunk() {}
        } else {
            self.reader.read_to_string(&mut self.body).unwrap();
        }
        Reply { status: self.status, headers: self.headers, body: self.body }
    }
}

pub fn connect(to: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(to).unwrap();
    tcp.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    tcp
}

/// The head of a request.
pub fn head(method: &str, path: &str, headers: &[(&str, &str)], length: usize) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    if method == "POST" {
        head.push_str(&format!("content-length: {length}\r\n"));
    }
    head + "\r\n"
}

/// Reads the head of a response.
pub fn read_head(tcp: TcpStream) -> Opened {
    let mut reader = BufReader::new(tcp);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {line:?}")).parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_string()));
    }
    Opened { status, headers, reader, body: String::new() }
}

/// Sends a request; gives the response when its head is there.
pub fn open(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Opened {
    let mut tcp = connect(to);
    tcp.write_all(head(method, path, headers, body.len()).as_bytes()).unwrap();
    // A server that refuses early may close the connection.
    let _ = tcp.write_all(body);
    read_head(tcp)
}

pub const JSON: (&str, &str) = ("content-type", "application/json");

pub fn post(to: SocketAddr, path: &str, body: &Value) -> Reply {
    open(to, "POST", path, &[JSON], body.to_string().as_bytes()).rest()
}

pub fn post_text(to: SocketAddr, path: &str, body: &str) -> Reply {
    open(to, "POST", path, &[JSON], body.as_bytes()).rest()
}

pub fn get(to: SocketAddr, path: &str) -> Reply {
    open(to, "GET", path, &[], b"").rest()
}
