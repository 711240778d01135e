//! From an accepted connection to a session: TLS, the WebSocket's handshake, the hello, the token, the process.

use super::config::Config;
use super::session::{POLL_INTERVAL, Session};
use super::worker::{Isolation, Streams, Worker};
use crate::net::gate::{Gate, Place};
use crate::net::upgrade::{OpenSocket, Upgrade, refuse as refuse_request};
use crate::net::{Link, Socket};
use crate::pipe;
use crate::wire::limits::{HANDSHAKE, MAX_INTEGER, MAX_MESSAGE, PROTOCOL, VERSION, WINDOW, too_large};
use crate::wire::{self, Reply, Request, ToClient, convert};
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use prost::Message as _;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tapml_files::Temporary;
use tapml_graph::{Context, Error, ErrorKind, Result};
use tungstenite::Message;

/// How long a session's process may take to open its device.
const OPENING: Duration = Duration::from_secs(60);

/// How long a client that is not let in may take to read why.
pub const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What every connection goes through.
pub struct Door {
    pub config: Config,
    pub gate: Gate,
    pub isolation: Isolation,
    pub blobs: PathBuf,
    /// Where the sessions' recorders write, and the blobs of an agent without a folder for them.
    pub temporary: Temporary,
    pub stop: Arc<AtomicBool>,
}

impl Door {
    /// What an agent answers: WebSockets, whatever the path.
    pub fn routes(self: &Arc<Door>) -> Router {
        let door = self.clone();
        Router::new().fallback(move |upgrade: Option<Upgrade>| std::future::ready(door.answer(upgrade)))
    }

    fn answer(self: &Arc<Door>, upgrade: Option<Upgrade>) -> Response {
        let Some(upgrade) = upgrade else {
            return refuse_request(
                StatusCode::UPGRADE_REQUIRED,
                "this is an agent of TapML devices: `tapml device list ws://...` shows them",
            );
        };
        // A page of any site could otherwise use an agent on its visitor's own machine.
        let known = |origin: &str| self.config.origins.iter().any(|allowed| allowed == origin);
        if upgrade.origin.as_ref().is_some_and(|o| !o.to_str().is_ok_and(known)) {
            return refuse_request(StatusCode::FORBIDDEN, "pages of this origin may not connect");
        }
        let door = self.clone();
        upgrade.accept(PROTOCOL, move |opened| door.serve(opened))
    }

    /// Serves one connection to its end.
    fn serve(&self, opened: OpenSocket) {
        let OpenSocket { mut socket, from, place: waiting } = opened;
        let link = socket.link().clone();
        link.peer().expect_within(self.config.slow);
        match self.let_in(&mut socket, from) {
            Ok(LetIn { seq, hello, place }) => {
                drop(waiting);
                if let Err(error) = self.session(seq, hello, link.clone(), socket) {
                    log::warn!("{from}: {error}");
                    refuse(&link, seq, &error);
                }
                drop(place);
            }
            Err(error) => {
                log::warn!("{from} is not let in: {error}");
                refuse(&link, 1, &error);
                socket.drain(CLOSE_GRACE);
            }
        }
    }

    /// Serves a session on a connection that this side has dialled: a hub answers for the client.
    pub fn serve_dialled(&self, mut socket: Socket, place: Place) {
        let link = socket.link().clone();
        let (seq, served) = match hello(&mut socket) {
            Ok((seq, hello)) => (seq, self.session(seq, hello, link.clone(), socket)),
            Err(error) => (1, Err(error)),
        };
        if let Err(error) = served {
            log::warn!("a session through a hub: {error}");
            refuse(&link, seq, &error);
        }
        drop(place);
    }

    /// What there is: looked up by a process of its own, because drivers may crash.
    pub fn devices(&self) -> Result<Vec<wire::Offer>> {
        let recorder = self.recorder()?;
        let started = Worker::start(&self.isolation);
        let (worker, streams) =
            started.map_err(|e| Error::new(ErrorKind::Io, format!("could not start a session: {e}")))?;
        let hello = wire::Hello { version_min: VERSION, version_max: VERSION, ..Default::default() };
        let (reply, _) = self.open(1, hello, &worker, streams, recorder.path(), 0)?;
        match reply {
            Reply::Welcome(welcome) => Ok(welcome.devices),
            Reply::Failed(failed) => Err(convert::error_from_wire(failed)),
            _ => Err(Error::bug("a session's process answers a hello with something else than a welcome")),
        }
    }

    /// A file in which a session's process notes what it does.
    fn recorder(&self) -> Result<tempfile::NamedTempFile> {
        let folder = self.temporary.path();
        tempfile::NamedTempFile::new_in(folder).map_err(|e| Error::io("create a file in", folder, &e))
    }

    /// The hello of a client whose version and token are right.
    fn let_in(&self, socket: &mut Socket, from: SocketAddr) -> Result<LetIn<Place>> {
        let (seq, hello) = hello(socket)?;
        let place = self.gate.enter(from.ip(), &hello.token)?;
        Ok(LetIn { seq, hello, place })
    }

    /// Starts the session's process, opens the device, and serves.
    fn session(&self, seq: u64, hello: wire::Hello, link: Arc<Link>, mut socket: Socket) -> Result<()> {
        link.peer().allow(OPENING + HANDSHAKE);
        let recorder = self.recorder()?;
        let mut settings = self.config.settings.clone();
        if hello.deadline_ms > 0 {
            settings.deadline = settings.deadline.min(Duration::from_millis(hello.deadline_ms));
        }
        let started = Worker::start(&self.isolation);
        let (worker, streams) =
            started.map_err(|e| Error::new(ErrorKind::Io, format!("could not start a session: {e}")))?;
        log::info!("session for `{}` in process {:?}", hello.target, worker.id());
        let target = hello.target.clone();
        let (welcome, streams) = self.open(seq, hello, &worker, streams, recorder.path(), settings.memory)?;
        let Reply::Welcome(mut welcome) = welcome else {
            reply(&link, seq, welcome)?;
            link.finish();
            drain(&mut socket);
            return Ok(());
        };
        welcome.agent = concat!("tapml ", env!("CARGO_PKG_VERSION")).into();
        welcome.limits = Some(wire::SessionLimits {
            max_message: MAX_MESSAGE as u64,
            window: WINDOW,
            deadline_ms: settings.deadline.as_millis() as u64,
            idle_ms: settings.idle.as_millis() as u64,
            memory: settings.memory.min(MAX_INTEGER),
        });
        reply(&link, seq, Reply::Welcome(welcome))?;
        if target.is_empty() {
            link.finish();
            drain(&mut socket);
            return Ok(());
        }
        socket.widen();
        socket.let_in(POLL_INTERVAL);
        socket.drive_here().map_err(|e| lost_error(&e))?;
        let (path, stop) = (recorder.path().to_path_buf(), self.stop.clone());
        let blobs = self.blobs.clone();
        Session { link, socket, worker, streams, recorder: path, blobs, settings, stop, hello: seq }.run();
        Ok(())
    }

    /// Lets the process open the device, within a time.
    fn open(
        &self,
        seq: u64,
        mut hello: wire::Hello,
        worker: &Worker,
        mut streams: Streams,
        recorder: &Path,
        memory: u64,
    ) -> Result<(Reply, Streams)> {
        // The process has no use for the token.
        hello.token = String::new();
        let settings = pipe::Settings {
            recorder: recorder.display().to_string(),
            blobs: self.blobs.display().to_string(),
            blob_bytes: self.config.blob_bytes,
            memory,
        };
        let hello = wire::encode(&wire::ToAgent { seq, request: Some(Request::Hello(hello)) });
        let mut first = || {
            pipe::write(&mut streams.to, 0, &settings.encode_to_vec())?;
            pipe::write(&mut streams.to, seq, &hello)
        };
        let sent = first();
        let Streams { to, mut from } = streams;
        let (tell, told) = mpsc::channel();
        let wait = std::thread::spawn(move || {
            let _ = tell.send(pipe::read(&mut from));
            from
        });
        let reply: Option<Bytes> = match told.recv_timeout(OPENING) {
            Ok(Ok(Some((_, bytes)))) if sent.is_ok() => Some(bytes),
            _ => None,
        };
        let Some(bytes) = reply else {
            worker.kill();
            let end = worker.end();
            let how = match end.signal {
                0 => end.code.map_or("no answer in time".into(), |code| format!("exit code {code}")),
                signal => format!("signal {signal}"),
            };
            let text = format!("the device's process failed to open the device: {how}");
            return Err(Error::new(ErrorKind::Unavailable, text).with_detail("output", end.output));
        };
        let from: Box<dyn Read + Send> =
            wait.join().map_err(|_| Error::bug("the thread that waits for a welcome panicked"))?;
        let message = wire::decode_welcome(bytes).context(|| "the session's process".into())?;
        let reply = message.reply.ok_or_else(|| Error::bug("an empty welcome"))?;
        Ok((reply, Streams { to, from }))
    }
}

/// A client that was let in.
pub struct LetIn<P> {
    /// The number of its hello.
    pub seq: u64,
    pub hello: wire::Hello,
    /// Kept while it is served.
    pub place: P,
}

/// The hello of a client whose version is right.
pub fn hello(socket: &mut Socket) -> Result<(u64, wire::Hello)> {
    let message = loop {
        match socket
            .read()
            .map_err(|e| too_large(&e).unwrap_or_else(|| Error::invalid(format!("no hello: {e}"))))?
        {
            Message::Binary(bytes) => break wire::decode_request(bytes)?,
            Message::Ping(_) | Message::Pong(_) => {}
            _ => return Err(Error::invalid("expected a hello in a binary message")),
        }
    };
    let Some(Request::Hello(hello)) = message.request else {
        return Err(Error::invalid("expected a hello first"));
    };
    if !(hello.version_min..=hello.version_max).contains(&VERSION) {
        let (low, high) = (hello.version_min, hello.version_max);
        let text = format!("the agent speaks version {VERSION}, the client {low} to {high}");
        return Err(Error::unsupported(text).with_hint("use the same release of TapML on both sides"));
    }
    Ok((message.seq, hello))
}

fn reply(link: &Link, seq: u64, reply: Reply) -> Result<()> {
    link.send(wire::encode(&ToClient { seq, reply: Some(reply) })).map_err(|e| lost_error(&e))
}

fn refuse(link: &Link, seq: u64, error: &Error) {
    // A client that is gone needs no answer.
    let _ = reply(link, seq, Reply::Failed(convert::error_to_wire(error)));
    link.finish();
}

/// Reads until the client closes, so that it gets to see the last message; bounded by the time for being let in.
fn drain(socket: &mut Socket) {
    while socket.read().is_ok_and(|m| !m.is_close()) {}
}

fn lost_error(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the client is gone: {error}"))
}
