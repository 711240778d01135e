//! Strangers without a token: idle connections, ones that never finish what they say, wrong tokens. Who has a token is
//! served beside them.
#![allow(clippy::unwrap_used)]

mod common;

use common::hubs::{self, Serving};
use common::{Running, count};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tapml_device::{ErrorKind, Result};
use tapml_rpc::agent::Config;
use tapml_rpc::{Address, RemoteDevice};

const TOKEN: &str = "the token of these tests";

/// Connections that say nothing, and come again as soon as they are dropped.
struct Strangers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Strangers {
    fn start(at: SocketAddr, count: usize) -> Strangers {
        let stop = Arc::new(AtomicBool::new(false));
        let dial = move || {
            let tcp = TcpStream::connect(at).unwrap();
            tcp.set_nonblocking(true).unwrap();
            tcp
        };
        let all: Vec<_> = (0..count).map(|_| dial()).collect();
        let over = stop.clone();
        let thread = std::thread::spawn(move || stay(all, dial, &over));
        Strangers { stop, thread: Some(thread) }
    }
}

/// Dials once more for every connection that was dropped.
fn stay(mut all: Vec<TcpStream>, dial: impl Fn() -> TcpStream, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        for tcp in &mut all {
            let dropped = |e: std::io::Error| e.kind() != std::io::ErrorKind::WouldBlock;
            if tcp.read(&mut [0; 64]).map_or_else(dropped, |have| have == 0) {
                *tcp = dial();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
    }
}

/// A folder with a certificate, its key, the right token and a wrong one.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("cert.pem", include_bytes!("data/cert.pem").as_slice()),
            ("key.pem", include_bytes!("data/key.pem")),
        ] {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        for (name, token) in [("right", TOKEN), ("wrong", "another token altogether")] {
            tapml_testing::write_secret(&folder.path().join(name), token).unwrap();
        }
        Files(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// An agent, an agent with TLS, or a hub with an agent; all want the token.
enum Side {
    Agent(Running, &'static str),
    Hub(SocketAddr, #[expect(dead_code, reason = "they serve until they are dropped")] [Serving; 2]),
}

impl Side {
    fn agent(files: &Files, tls: bool) -> Side {
        let seal = |()| tapml_rpc::tls::server(&files.path("cert.pem"), &files.path("key.pem")).unwrap();
        let tls = tls.then_some(()).map(seal);
        let scheme = if tls.is_some() { "wss" } else { "ws" };
        Side::Agent(Running::threads(Config { token: Some(TOKEN.into()), tls, ..Config::default() }), scheme)
    }

    fn hub(files: &Files) -> Side {
        let config = tapml_rpc::hub::Config { token: Some(TOKEN.into()), ..Default::default() };
        let (place, hub) = hubs::hub(config);
        let agent = hubs::threads_with(place, "lab", &files.path("right"));
        Side::Hub(place, [hub, agent])
    }

    fn place(&self) -> SocketAddr {
        match self {
            Side::Agent(agent, _) => agent.address,
            Side::Hub(place, _) => *place,
        }
    }

    fn open(&self, files: &Files, token: &str) -> Result<RemoteDevice> {
        let text = |path: &Path| path.display().to_string();
        let mut options = vec![("token-file".into(), text(&files.path(token)))];
        let word = match self {
            Side::Agent(_, scheme) => {
                options.push(("ca".into(), text(&files.path("cert.pem"))));
                format!("{scheme}://localhost:{}/emulator", self.place().port())
            }
            Side::Hub(place, _) => {
                options.push(("hub".into(), format!("ws://{place}")));
                "hub/emulator".into()
            }
        };
        RemoteDevice::open(&Address::parse(&word, &options)?)
    }
}

/// Sessions open and work one after the other.
fn serves(side: &Side, files: &Files) {
    for _ in 0..10 {
        let start = Instant::now();
        let mut device = side.open(files, "right").unwrap();
        assert_eq!(count(&mut device, &["fine"]).unwrap(), 1);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}

#[test]
fn idle_strangers_take_no_place_from_those_who_speak() {
    let files = Files::new();
    for side in [Side::agent(&files, false), Side::agent(&files, true), Side::hub(&files)] {
        serves(&side, &files);
        let _silent = Strangers::start(side.place(), 300);
        serves(&side, &files);
    }
}

#[test]
fn after_wrong_tokens_the_right_one_is_told_how_long_it_is_turned_away() {
    let files = Files::new();
    for side in [Side::agent(&files, false), Side::agent(&files, true), Side::hub(&files)] {
        for _ in 0..5 {
            let wrong = side.open(&files, "wrong").err().unwrap();
            assert!(wrong.to_string().contains("this token is not accepted"), "{wrong}");
        }
        let away = side.open(&files, "right").err().unwrap();
        assert_eq!(away.kind(), ErrorKind::Unavailable, "{away}");
        assert!(away.to_string().contains("wrong tokens") && away.to_string().contains(" s"), "{away}");
        assert!(away.hint().unwrap().contains("token"), "{away:?}");
    }
}

/// Whoever says a byte now and then is still dropped in time.
#[test]
fn a_handshake_has_one_deadline_however_slowly_it_goes_on() {
    let files = Files::new();
    let sides = [Side::agent(&files, false), Side::agent(&files, true), Side::hub(&files)];
    std::thread::scope(|scope| sides.iter().for_each(|side| drop(scope.spawn(|| trickle(side)))));
}

/// Says one byte after the other until the other side closes.
fn trickle(side: &Side) {
    let mut tcp = TcpStream::connect(side.place()).unwrap();
    tcp.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let start = Instant::now();
    let record = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    let request = b"GET /agent HTTP/1.1\r\nx-slow: ";
    let head = if matches!(side, Side::Agent(_, "wss")) { &record[..] } else { request };
    for byte in head.iter().chain(std::iter::repeat(&b'a')) {
        let written = tcp.write(&[*byte]);
        let over = |e: std::io::Error| e.kind() != std::io::ErrorKind::WouldBlock;
        if written.is_err() || tcp.read(&mut [0; 64]).map_or_else(over, |have| have == 0) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "still heard");
    }
}
