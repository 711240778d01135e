//! What is said when something is refused or does not answer.
#![allow(clippy::unwrap_used)]

mod common;

use common::hubs::{hub, threads, wait_for_devices};
use common::{Running, count};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tapml_device::ErrorKind;
use tapml_rpc::agent::Config;
use tapml_rpc::wire::{self, Hello, Reply, Request, ToAgent};
use tapml_rpc::{Address, RemoteDevice};
use tungstenite::{Bytes, Message, WebSocket};

#[test]
fn who_is_full_names_the_option_that_bounds_it() {
    let agent = Running::threads(Config { sessions: 1, ..Config::default() });
    let _one = agent.open("emulator", "");
    let full = RemoteDevice::open(&agent.address("emulator", "")).err().unwrap();
    assert!(
        full.to_string().contains("1 sessions") && full.hint().unwrap().contains("--sessions"),
        "{full:?}"
    );
    let (place, _hub) = hub(tapml_rpc::hub::Config { clients: 1, ..Default::default() });
    let _agent = threads(place, "lab");
    wait_for_devices(place, 1);
    // A client that lists devices takes no place, nor does it need one.
    let _one = common::hubs::open(place, "lab").unwrap();
    assert_eq!(wait_for_devices(place, 1).len(), 1);
    let full = common::hubs::open(place, "lab").err().unwrap();
    assert!(full.to_string().contains("1 clients") && full.hint().unwrap().contains("--clients"), "{full:?}");
}

#[test]
fn a_program_that_takes_connections_and_says_nothing_is_told_as_such() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let open = |word: String, hub: Option<String>| {
        let options: Vec<_> = hub.map(|hub| ("hub".to_string(), hub)).into_iter().collect();
        RemoteDevice::open(&Address::parse(&word, &options).unwrap()).err().unwrap()
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (word, hub) in [
            (format!("ws://{at}/emulator"), None),
            (format!("wss://{at}/emulator"), None),
            ("hub/emulator".into(), Some(format!("ws://{at}"))),
        ] {
            scope.spawn(|| {
                let error = open(word, hub);
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("has said nothing for 10 s"), "{error}");
                assert!(!error.to_string().contains("WouldBlock"), "{error}");
            });
        }
    });
    assert!(start.elapsed() < Duration::from_secs(60));
}

fn raw(at: SocketAddr) -> WebSocket<TcpStream> {
    let tcp = TcpStream::connect(at).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    tungstenite::client(format!("ws://{at}/"), tcp).unwrap().0
}

/// What is said before the connection ends.
fn last_words(socket: &mut WebSocket<TcpStream>) -> wire::Failed {
    loop {
        if let Message::Binary(bytes) = socket.read().unwrap()
            && let Some(Reply::Failed(failed)) = wire::decode_reply(bytes).unwrap().reply
        {
            return failed;
        }
    }
}

#[test]
fn a_message_above_the_limit_is_refused_with_words() {
    let agent = Running::threads(Config::default());
    let (place, _hub) = hub(tapml_rpc::hub::Config::default());
    let _lab = threads(place, "lab");
    wait_for_devices(place, 1);
    let large = || Message::Binary(Bytes::from(vec![0; (16 << 20) + 1]));
    for at in [agent.address, place] {
        // Before a hello 64 KiB are the most.
        let mut socket = raw(at);
        socket.send(Message::Binary(Bytes::from(vec![0; 100_000]))).unwrap();
        let failed = last_words(&mut socket);
        assert!(failed.message.contains("100000 bytes") && failed.message.contains("65536"), "{failed:?}");
        // In a session, 16 MiB.
        let mut socket = raw(at);
        let hello = Hello { version_min: 1, version_max: 1, target: "emulator".into(), ..Default::default() };
        let hello = ToAgent { seq: 1, request: Some(Request::Hello(hello)) };
        socket.send(Message::Binary(wire::encode(&hello))).unwrap();
        loop {
            let Message::Binary(bytes) = socket.read().unwrap() else { continue };
            if let Some(Reply::Welcome(_)) = wire::decode_reply(bytes).unwrap().reply {
                break;
            }
        }
        socket.send(large()).unwrap();
        let failed = last_words(&mut socket);
        assert!(
            failed.message.contains("16777217 bytes") && failed.message.contains("16777216"),
            "{failed:?}"
        );
        assert!(failed.hint.contains("pieces"), "{failed:?}");
    }
    assert_eq!(count(&mut agent.open("emulator", ""), &["fine"]).unwrap(), 1);
}
