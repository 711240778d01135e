//! A client of a NATS server for threads that wait, which dials again when its connection breaks. What is asked while there is no
//! connection fails, and so does what waits for an answer when it breaks: nothing is asked twice.
//!
//! One thread owns the connection and dials again; callers ask through a handle and wait. Nothing is queued
//! while the broker is away: a caller sees `Unavailable` and decides.

use crate::address::Address;
use crate::connection::{CONNECT_TIMEOUT, Connection, Handle};
use async_nats::client::RequestErrorKind;
use async_nats::{HeaderMap, Message, Request};
use futures_util::StreamExt;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tapml_graph::{Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::time::timeout;

// Short enough that a broker's restart costs little, long enough not to be a load.
/// How long to wait before dialling again.
const AGAIN: Duration = Duration::from_millis(250);

// A reader that hangs must not fill memory.
/// Most bytes of messages of a subscription that wait to be read, and most messages.
const BACKLOG: (usize, usize) = (256 << 20, 1 << 16);

/// See the module.
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    /// Servers, of which the first that answers is taken.
    addresses: Vec<Address>,
    /// The handle of the present connection, if there is one.
    current: Mutex<Option<Handle>>,
    /// How often a connection was made.
    made: AtomicU64,
    /// Set when the client is dropped.
    over: AtomicBool,
    /// Wakes the thread for that.
    stop: Notify,
}

/// What comes at a subject of this client's own, until the connection breaks.
pub struct Subscription {
    /// The subject.
    pub inbox: String,
    messages: mpsc::Receiver<Message>,
    /// Bytes that wait to be read.
    backlog: Arc<AtomicUsize>,
    task: tokio::task::AbortHandle,
}

/// A panic elsewhere leaves the data as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Connects to a server, such as `nats://[user:password@]host[:port]`, or to one of several, joined by commas. From here on the
    /// connection is made again whenever it breaks.
    pub fn connect(url: &str) -> Result<Client> {
        let addresses = url.split(',').map(Address::parse).collect::<Result<Vec<Address>>>()?;
        // What is wrong with a file is told at once, and as it is.
        addresses.iter().try_for_each(|address| address.options().map(drop))?;
        let names: Vec<String> = addresses.iter().map(Address::url).collect();
        let inner = Arc::new(Inner {
            addresses,
            current: Mutex::default(),
            made: AtomicU64::new(0),
            over: AtomicBool::new(false),
            stop: Notify::new(),
        });
        let (own, (tell, told)) = (inner.clone(), mpsc::channel());
        let run = move || own.run(&tell);
        std::thread::Builder::new().name("broker".into()).spawn(run).map_err(|e| unavailable(&e))?;
        let dialled = told.recv().map_err(|e| unavailable(&e))?;
        dialled.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("no broker answers at {}: {error}", names.join(",")))
                .with_hint("`nats-server -js` must run there; the address looks like nats://host:4222")
        })?;
        Ok(Client { inner })
    }

    /// How often a connection was made: rises when one was lost and made again.
    pub fn connections(&self) -> u64 {
        self.inner.made.load(Ordering::Acquire)
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        lock(&self.inner.current).is_some()
    }

    /// # Errors
    /// `Unavailable` while there is no connection.
    fn handle(&self) -> Result<Handle> {
        lock(&self.inner.current).clone().ok_or_else(away_error)
    }

    /// Publishes a message.
    ///
    /// Returns when the message is handed to the connection, not when the server has it.
    pub fn publish(&self, subject: &str, payload: &[u8]) -> Result<()> {
        let (subject, payload) = (subject.to_string(), payload.to_vec());
        let done = self.handle()?.call(async move |client: async_nats::Client| {
            let published = timeout(CONNECT_TIMEOUT, client.publish(subject, payload.into())).await;
            published.map_err(|_| silent_error())?.map_err(|e| unavailable(&e))
        });
        done.ok_or_else(away_error)?
    }

    /// Publishes a message with headers and waits for the answer.
    ///
    /// # Errors
    /// `Unavailable` if there is no connection, no answer in time, or nobody listens.
    pub fn request(
        &self,
        subject: &str,
        headers: &[(&'static str, String)],
        payload: &[u8],
    ) -> Result<Message> {
        let mut head = HeaderMap::new();
        headers.iter().for_each(|(name, value)| head.insert(*name, value.as_str()));
        let (subject, payload) = (subject.to_string(), payload.to_vec());
        let done = self.handle()?.call(async move |client: async_nats::Client| {
            // What a stream delivers has the stream's subject, so it needs an inbox of its own.
            let request = Request::new().payload(payload.into()).headers(head).inbox(client.new_inbox());
            timeout(CONNECT_TIMEOUT, client.send_request(subject, request)).await.map_err(|_| silent_error())
        });
        done.ok_or_else(away_error)??.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => {
                unavailable(&"the broker has no JetStream; start it by `nats-server -js`")
            }
            RequestErrorKind::TimedOut => silent_error(),
            _ => unavailable(&error),
        })
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
        headers: &[(&'static str, String)],
        payload: &[u8],
    ) -> Result<std::result::Result<u64, u64>> {
        let answer = self.request(subject, headers, payload)?;
        Ok(read_answer(&answer, subject)?.map(|kept| kept["seq"].as_u64().unwrap_or(0)))
    }

    /// A subject of this client's own, and what comes there.
    pub fn subscribe_inbox(&self) -> Result<Subscription> {
        let handle = self.handle()?;
        let done = handle.call(async move |client: async_nats::Client| {
            let inbox = client.new_inbox();
            let subscribed = timeout(CONNECT_TIMEOUT, client.subscribe(inbox.clone())).await;
            Ok((inbox, subscribed.map_err(|_| silent_error())?.map_err(|e| unavailable(&e))?))
        });
        let (inbox, mut subscriber) = done.ok_or_else(away_error)??;
        let (tell, messages) = mpsc::sync_channel(BACKLOG.1);
        let backlog = Arc::new(AtomicUsize::new(0));
        let waiting = backlog.clone();
        let task = handle.spawn(async move {
            while let Some(message) = subscriber.next().await {
                // Who does not keep up begins anew.
                let before = waiting.fetch_add(message.length, Ordering::AcqRel);
                if before > BACKLOG.0 || tell.try_send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Subscription { inbox, messages, backlog, task })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Release);
        self.inner.stop.notify_one();
    }
}

impl Subscription {
    /// The next message; `None` if there is none in time. Fails if no more can come.
    pub fn receive(&self, within: Duration) -> Result<Option<Message>> {
        match self.messages.recv_timeout(within) {
            Ok(message) => {
                self.backlog.fetch_sub(message.length, Ordering::AcqRel);
                Ok(Some(message))
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(unavailable(&"the subscription has ended")),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inner {
    /// Dials, tells how that went, and dials again whenever the connection has ended, until the client is dropped.
    fn run(&self, tell: &mpsc::Sender<std::result::Result<(), String>>) {
        let mut connection = match self.dial() {
            Ok(connection) => connection,
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        // Whoever waits for it may have given up.
        let _ = tell.send(Ok(()));
        loop {
            let why = connection.run(&self.stop);
            lock(&self.current).take();
            if self.over.load(Ordering::Acquire) {
                return;
            }
            log::warn!("the broker is away ({why}); dialling again");
            connection = loop {
                std::thread::sleep(AGAIN);
                if self.over.load(Ordering::Acquire) {
                    return;
                }
                match self.dial() {
                    Ok(connection) => break connection,
                    Err(error) => log::debug!("the broker is away: {error}"),
                }
            };
            log::warn!("the broker is back");
        }
    }

    /// Makes a connection to the first server that answers.
    fn dial(&self) -> std::result::Result<Connection, String> {
        let mut last = "there is no address".to_string();
        for address in &self.addresses {
            match Connection::dial(address) {
                Ok(connection) => {
                    self.made.fetch_add(1, Ordering::AcqRel);
                    *lock(&self.current) = Some(connection.handle());
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The value of a JetStream answer, or its error number.
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

/// There is no connection.
fn away_error() -> Error {
    unavailable(&"the broker is away")
}

/// There is one, and no answer came in time.
fn silent_error() -> Error {
    unavailable(&"the broker does not answer")
}

/// The broker cannot do it now.
pub fn unavailable(why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("broker: {why}"))
}
