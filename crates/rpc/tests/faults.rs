//! What goes wrong between a client and its device, one test each. Afterwards the next command works, and no result was
//! lost or made up.
#![allow(clippy::unwrap_used)]

mod common;

use common::outer::Outer;
use common::proxy::Proxy;
use common::{Running, count, quick, record_kernels};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use tapml_device::{BatchedStep, Device, Error, ErrorKind, Get, Symbols};
use tapml_rpc::RemoteDevice;
use tapml_rpc::agent::{Agent, Config, Isolation, Settings};
use tapml_rpc::wire::{self, Reply, Request, ToAgent, ToClient};
use tungstenite::{Message, WebSocket};

#[test]
fn session_process() {
    common::session_process();
}

#[test]
fn outer_agent() {
    common::outer::outer_agent();
}

/// The agent still serves, and right.
fn serves_on(agent: &Running) {
    let mut device = agent.open("emulator", "");
    assert_eq!(count(&mut device, &["fine", "fine too"]).unwrap(), 2);
}

fn expect_lost(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
}

#[test]
fn a_kernel_that_crashes_the_process_ends_in_a_post_mortem() {
    let agent = Running::processes(Config::default());
    let mut device = agent.open("trap", "");
    let (buffer, list) = record_kernels(&mut device, &["fine", "abort"]).unwrap();
    device.replay(list, &Symbols::np(3, 4)).unwrap();
    let error = device.read(buffer, 0, &mut [0; 4]).unwrap_err();
    expect_lost(&error);
    assert!(error.to_string().contains("SIGABRT"), "{error}");
    let detail = |name: &str| error.detail(name).unwrap_or_else(|| panic!("no detail `{name}`")).to_string();
    assert_eq!(
        (detail("kernel").as_str(), detail("line").as_str(), detail("signal").as_str()),
        ("fine", "3", "6")
    );
    assert!(error.to_string().contains("from `run fine` to `run abort`"), "{error}");
    assert!(detail("output").contains("the driver gives up"));
    assert!(detail("recent").contains("create buffer 1 `counted` of 16 bytes"));
    assert!(
        detail("running").contains("`run abort` by kernel `abort` on [counted]"),
        "{}",
        detail("running")
    );
    assert!(detail("running").contains("n = 3, p = 4"));
    // The device stays lost, with the same story.
    assert_eq!(device.wait().unwrap_err().to_string(), error.to_string());
    expect_lost(&device.create_buffer("b", 4).unwrap_err());
    serves_on(&agent);
}

#[test]
fn tracing_names_the_command_that_was_running() {
    let agent = Running::processes(Config::default());
    let mut device = agent.open("trap", "trace=on");
    let error = count(&mut device, &["fine", "fine 2", "exit", "fine 3"]).unwrap_err();
    expect_lost(&error);
    assert_eq!((error.detail("kernel"), error.detail("exit code")), (Some("exit"), Some("7")), "{error}");
    assert!(error.to_string().contains("running `run exit`"), "{error}");
    assert!(error.detail("source").is_some_and(|s| s.contains("@compute")));
    let mut traced = agent.open("emulator", "trace=on");
    assert_eq!(count(&mut traced, &["a", "b", "c"]).unwrap(), 3);
}

#[test]
fn a_panic_in_a_process_is_told_with_its_message() {
    let agent = Running::processes(Config::default());
    let error = count(&mut agent.open("trap", ""), &["panic"]).unwrap_err();
    expect_lost(&error);
    assert!(error.detail("output").is_some_and(|o| o.contains("trapped")), "{error}");
    serves_on(&agent);
}

#[test]
fn a_kernel_that_never_ends_meets_the_deadline() {
    for (isolated, options) in [(true, "deadline=1"), (false, "")] {
        let config = quick(Duration::from_secs(if options.is_empty() { 2 } else { 60 }));
        let agent = if isolated { Running::processes(config) } else { Running::threads(config) };
        let mut device = agent.open("trap", options);
        let start = Instant::now();
        let error = count(&mut device, &["hang"]).unwrap_err();
        expect_lost(&error);
        assert!(error.to_string().contains("did not finish within"), "{error}");
        assert_eq!(error.detail("kernel"), Some("hang"));
        assert!(start.elapsed() < Duration::from_secs(30));
        serves_on(&agent);
    }
}

#[test]
fn each_turn_of_a_message_has_the_deadline_for_itself() {
    let agent = Running::processes(quick(Duration::from_secs(60)));
    let mut device = agent.open("trap", "deadline=2");
    let (buffer, list) = record_kernels(&mut device, &["slow"]).unwrap();
    let turn = |p| BatchedStep { writes: Vec::new(), symbols: Symbols::np(1, p) };
    let (mut word, start) = ([0; 4], Instant::now());
    let read = Get { buffer, offset: 0, out: &mut word };
    device.run_steps(list, &[0, 1, 2, 3].map(turn), &mut [read]).unwrap();
    assert!(start.elapsed() > Duration::from_secs(2), "together they take longer than one may");
    assert_eq!(u32::from_le_bytes(word), 4);
    let (buffer, list) = record_kernels(&mut device, &["hang"]).unwrap();
    let read = Get { buffer, offset: 0, out: &mut word };
    let error = device.run_steps(list, &[7, 8].map(turn), &mut [read]).unwrap_err();
    expect_lost(&error);
    assert!(error.to_string().contains("did not finish within"), "{error}");
    assert_eq!(error.detail("kernel"), Some("hang"));
    assert!(error.detail("running").unwrap().contains("n = 1, p = 7 (turn 1 of 2)"), "{error}");
    serves_on(&agent);
}

#[test]
fn slow_work_within_the_deadline_is_finished() {
    let agent = Running::processes(quick(Duration::from_secs(30)));
    let mut device = agent.open("trap", "answer-within=3");
    assert_eq!(count(&mut device, &["slow"; 6]).unwrap(), 6);
}

/// Kills the processes of this test's agents. Tests of one file share a process, so this test runs its own agent in a
/// process of the test executable.
#[test]
fn a_process_killed_in_the_middle_of_anything_loses_the_device_only() {
    let Some(agent) = Outer::start("processes", &[]) else { return };
    for moment in ["upload", "launch", "read"] {
        let mut device = agent.open("trap");
        let big = device.create_buffer("big", 64 << 20).unwrap();
        let (_, list) = record_kernels(&mut device, &["slow"]).unwrap();
        device.write(big, 0, &vec![3; 64 << 20]).unwrap();
        device.wait().unwrap();
        let victims = agent.sessions(1, Duration::from_secs(10));
        assert_eq!(victims.len(), 1, "{victims:?}");
        let kill = || {
            assert!(Command::new("kill").arg("-9").arg(victims[0].to_string()).status().unwrap().success())
        };
        let mut out = vec![0; 64 << 20];
        let error = match moment {
            "upload" => {
                device.write(big, 4, &vec![4; 32 << 20]).unwrap();
                kill();
                device.write(big, 4, &vec![4; 32 << 20]).and_then(|()| device.wait())
            }
            "launch" => {
                device.replay(list, &Symbols::new()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                kill();
                device.wait()
            }
            _ => std::thread::scope(|scope| {
                let read = scope.spawn(|| device.read(big, 0, &mut out).and_then(|()| device.wait()));
                std::thread::sleep(Duration::from_millis(5));
                kill();
                read.join().unwrap()
            }),
        };
        let error = error.unwrap_err();
        expect_lost(&error);
        assert!(error.to_string().contains("killed (signal 9)"), "{moment}: {error}");
        if moment == "launch" {
            assert_eq!(error.detail("kernel"), Some("slow"));
        }
        let mut next = agent.open("emulator");
        assert_eq!(count(&mut next, &["fine"]).unwrap(), 1, "{moment}");
    }
}

#[test]
fn a_device_that_cannot_be_opened_is_told_and_the_agent_serves_on() {
    let agent = Running::processes(Config::default());
    let error = RemoteDevice::open(&agent.address("stillborn", "")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("signal 6"), "{error}");
    serves_on(&agent);
}

#[test]
fn a_lost_connection_is_a_lost_device_and_says_what_was_said_last() {
    let agent = Running::processes(Config::default());
    let proxy = Proxy::start(agent.address.port());
    let mut address = agent.address("emulator", "");
    address.port = proxy.port;
    let mut device = RemoteDevice::open(&address).unwrap();
    assert_eq!(count(&mut device, &["fine"]).unwrap(), 1);
    proxy.cut();
    let error = count(&mut device, &["more"]).unwrap_err();
    expect_lost(&error);
    assert!(error.detail("recent").is_some_and(|r| r.contains("read 4 bytes")), "{error}");
    serves_on(&agent);
}

#[test]
fn an_agent_that_falls_silent_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let silent = std::thread::spawn(move || {
        let (tcp, _) = listener.accept().unwrap();
        use tungstenite::handshake::server::{ErrorResponse, Request as Upgrade, Response};
        // The size of the error is the library's choice.
        #[allow(clippy::result_large_err)]
        let protocol = |_: &Upgrade, mut response: Response| -> Result<Response, ErrorResponse> {
            let name = wire::limits::PROTOCOL.parse().unwrap();
            response.headers_mut().insert("sec-websocket-protocol", name);
            Ok(response)
        };
        let mut socket = tungstenite::accept_hdr(tcp, protocol).unwrap();
        let hello = socket.read().unwrap();
        let seq = wire::decode_request(hello.into_data()).unwrap().seq;
        let device = Some(wire::convert::info_to_wire(
            tapml_device::null::NullDevice::new(tapml_device::Limits::WEBGPU, Default::default()).info(),
        ));
        let limits = Some(wire::SessionLimits { window: 1 << 20, ..Default::default() });
        let welcome = wire::Welcome { version: 1, device, limits, ..Default::default() };
        let bytes = wire::encode(&ToClient { seq, reply: Some(Reply::Welcome(welcome)) });
        socket.send(Message::Binary(bytes)).unwrap();
        while socket.read().is_ok() {}
    });
    let options = [("answer-within".to_string(), "1".to_string())];
    let address = tapml_rpc::Address::parse(&format!("ws://127.0.0.1:{port}/x"), &options).unwrap();
    let mut device = RemoteDevice::open(&address).unwrap();
    let error = device.wait().unwrap_err();
    expect_lost(&error);
    assert!(error.to_string().contains("no sign of life"), "{error}");
    drop(device);
    silent.join().unwrap();
}

/// A client of this test's own making.
fn raw(agent: &Running) -> WebSocket<TcpStream> {
    let tcp = TcpStream::connect(agent.address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    tungstenite::client(format!("ws://{}/", agent.address), tcp).unwrap().0
}

fn hello(low: u32, high: u32, token: &str) -> Request {
    Request::Hello(wire::Hello {
        version_min: low,
        version_max: high,
        token: token.into(),
        target: "emulator".into(),
        ..Default::default()
    })
}

fn send(socket: &mut WebSocket<TcpStream>, seq: u64, request: Request) {
    let bytes = wire::encode(&ToAgent { seq, request: Some(request) });
    socket.send(Message::Binary(bytes)).unwrap();
}

fn reply(socket: &mut WebSocket<TcpStream>) -> Reply {
    loop {
        if let Message::Binary(bytes) = socket.read().unwrap() {
            return wire::decode_reply(bytes).unwrap().reply.unwrap();
        }
    }
}

/// What the agent says before it closes.
fn failure(socket: &mut WebSocket<TcpStream>) -> wire::Failed {
    let Reply::Failed(failed) = reply(socket) else { panic!("no failure") };
    assert!(std::iter::repeat_with(|| socket.read()).take(5).any(|m| m.map_or(true, |m| m.is_close())));
    failed
}

#[test]
fn another_version_and_a_wrong_token_are_refused_with_the_reason() {
    let agent = Running::threads(Config { token: Some("the right token".into()), ..Config::default() });
    let mut socket = raw(&agent);
    send(&mut socket, 1, hello(7, 9, "the right token"));
    let failed = failure(&mut socket);
    assert_eq!(failed.kind(), wire::ErrorKind::Unsupported);
    assert!(failed.message.contains("speaks version 1, the client 7 to 9"), "{}", failed.message);
    for token in ["", "the right toke", "the right token2"] {
        let mut socket = raw(&agent);
        send(&mut socket, 1, hello(1, 1, token));
        assert!(failure(&mut socket).hint.contains("token-file"));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    tapml_testing::write_secret(&file, "the right token\n").unwrap();
    let right = agent.address("emulator", &format!("token-file={}", file.display()));
    assert_eq!(count(&mut RemoteDevice::open(&right).unwrap(), &["fine"]).unwrap(), 1);
    assert!(RemoteDevice::open(&agent.address("emulator", "")).is_err());
    // The fifth wrong token: the address is turned away for a while, even with the right one.
    assert!(RemoteDevice::open(&agent.address("emulator", "")).is_err());
    assert!(RemoteDevice::open(&right).is_err());
}

#[test]
fn web_pages_may_connect_only_if_their_origin_is_allowed() {
    let agent =
        Running::threads(Config { origins: vec!["https://good.example".into()], ..Config::default() });
    let connect = |origin: &str| {
        use tungstenite::client::IntoClientRequest;
        let mut request = format!("ws://{}/", agent.address).into_client_request().unwrap();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        tungstenite::client(request, TcpStream::connect(agent.address).unwrap()).is_ok()
    };
    assert!(connect("https://good.example"));
    assert!(!connect("https://evil.example"));
    assert!(!connect("null"));
}

#[test]
fn garbage_truncated_messages_and_huge_claims_end_the_connection_only() {
    let agent = Running::processes(Config::default());
    // Not even a WebSocket.
    let mut tcp = TcpStream::connect(agent.address).unwrap();
    tcp.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").unwrap();
    let _ = tcp.read(&mut [0; 64]);
    // Garbage instead of a hello, and no hello first.
    let mut socket = raw(&agent);
    socket.send(Message::Binary(vec![0xff; 100].into())).unwrap();
    assert!(failure(&mut socket).message.contains("number of more than 64 bits"));
    let mut socket = raw(&agent);
    send(&mut socket, 1, Request::Wait(wire::Wait {}));
    assert!(failure(&mut socket).message.contains("hello first"));
    // A hello that is larger than hellos are.
    let mut socket = raw(&agent);
    let _ = socket.send(Message::Binary(vec![0; 1 << 20].into()));
    assert!(std::iter::repeat_with(|| socket.read()).take(5).any(|m| m.is_err()));
    // Inside: a message cut short, one that claims 1 TB, and a frame that claims 1 TB.
    let open = || {
        let mut socket = raw(&agent);
        send(&mut socket, 1, hello(1, 1, ""));
        assert!(matches!(reply(&mut socket), Reply::Welcome(_)));
        socket
    };
    let write = Request::Write(wire::Write { buffer: 1, offset: 0, data: vec![1; 100].into() });
    let whole = wire::encode(&ToAgent { seq: 2, request: Some(write) });
    let mut socket = open();
    socket.send(Message::Binary(whole.slice(..50))).unwrap();
    assert!(failure(&mut socket).message.contains("claims a field of"));
    let mut socket = open();
    socket.send(Message::Binary(vec![0x3a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20].into())).unwrap();
    assert!(failure(&mut socket).message.contains("claims a field of 1099511627776 bytes"));
    let mut socket = open();
    let mut frame = vec![0x82, 0xff];
    frame.extend((1u64 << 40).to_be_bytes());
    frame.extend([0; 4]);
    socket.get_mut().write_all(&frame).unwrap();
    assert!(std::iter::repeat_with(|| socket.read()).take(5).any(|m| m.is_err()));
    // A read that claims 1 TB gives what there is, then the error.
    let mut socket = open();
    send(
        &mut socket,
        2,
        Request::CreateBuffer(wire::CreateBuffer { buffer: 1, label: "b".into(), size: 16 }),
    );
    send(&mut socket, 3, Request::Read(wire::Read { buffer: 1, offset: 0, size: 1 << 40 }));
    let Reply::Failed(failed) = reply(&mut socket) else { panic!("a read of 1 TB was answered") };
    assert_eq!(failed.kind(), wire::ErrorKind::InvalidInput);
    send(&mut socket, 4, Request::Read(wire::Read { buffer: 1, offset: 0, size: 16 }));
    assert!(matches!(reply(&mut socket), Reply::Data(d) if d.last && d.data.len() == 16));
    serves_on(&agent);
}

#[test]
fn a_reader_that_does_not_read_is_no_burden_to_others() {
    let agent = Running::processes(Config::default());
    let mut lazy = raw(&agent);
    send(&mut lazy, 1, hello(1, 1, ""));
    assert!(matches!(reply(&mut lazy), Reply::Welcome(_)));
    let create = wire::CreateBuffer { buffer: 1, label: "b".into(), size: 32 << 20 };
    send(&mut lazy, 2, Request::CreateBuffer(create));
    for seq in 3..8 {
        send(&mut lazy, seq, Request::Read(wire::Read { buffer: 1, offset: 0, size: 32 << 20 }));
    }
    std::thread::sleep(Duration::from_millis(300));
    serves_on(&agent);
    // What it asked for is still all there when it reads at last.
    let (mut bytes, mut ends) = (0, 0);
    while ends < 5 {
        let Reply::Data(data) = reply(&mut lazy) else { continue };
        bytes += data.data.len();
        ends += usize::from(data.last);
    }
    assert_eq!(bytes, 5 * (32 << 20));
}

/// A client that asks for much and never reads is given up, and its place is free again.
#[test]
fn a_reader_that_never_reads_is_given_up() {
    let config = Config { sessions: 1, slow: Duration::from_millis(500), ..Config::default() };
    let agent = Running::processes(config);
    let mut lazy = raw(&agent);
    send(&mut lazy, 1, hello(1, 1, ""));
    assert!(matches!(reply(&mut lazy), Reply::Welcome(_)));
    let create = wire::CreateBuffer { buffer: 1, label: "b".into(), size: 32 << 20 };
    send(&mut lazy, 2, Request::CreateBuffer(create));
    send(&mut lazy, 3, Request::Read(wire::Read { buffer: 1, offset: 0, size: 32 << 20 }));
    let until = Instant::now() + Duration::from_secs(60);
    assert!(RemoteDevice::open(&agent.address("emulator", "")).is_err(), "its place is taken");
    let mut device = loop {
        match RemoteDevice::open(&agent.address("emulator", "")) {
            Ok(device) => break device,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    // What had left for it before is all that it can still read.
    let read = std::iter::from_fn(|| lazy.read().ok()).map(|m| m.len()).sum::<usize>();
    assert!(read < 32 << 20, "{read}");
    assert_eq!(count(&mut device, &["fine", "fine too"]).unwrap(), 2);
}

#[test]
fn idle_sessions_are_ended_and_an_agent_that_stops_says_so() {
    let settings =
        Settings { deadline: Duration::from_secs(9), idle: Duration::from_millis(1500), memory: 1 << 30 };
    let agent = Running::processes(Config { settings, ..Config::default() });
    let mut device = agent.open("emulator", "");
    assert_eq!(count(&mut device, &["fine"]).unwrap(), 1);
    std::thread::sleep(Duration::from_millis(2500));
    let error = device.wait().unwrap_err();
    expect_lost(&error);
    assert!(error.to_string().contains("had sent nothing for long"), "{error}");
    let mut agent = Running::processes(Config::default());
    let mut device = agent.open("emulator", "");
    agent.stop();
    let error = device.wait().unwrap_err();
    expect_lost(&error);
    assert!(error.to_string().contains("the agent stops"), "{error}");
}

#[test]
fn agents_do_not_open_themselves_to_the_network_by_accident() {
    let threads = || Isolation::Thread(std::sync::Arc::new(common::Emulators));
    let token = || Some("a long enough token".to_string());
    let no_token = Agent::bind("0.0.0.0:0", Config::default(), threads()).err().unwrap();
    assert!(no_token.hint().unwrap().contains("--token-file"));
    let plain =
        Agent::bind("0.0.0.0:0", Config { token: token(), ..Config::default() }, threads()).err().unwrap();
    assert!(plain.hint().unwrap().contains("--tls-cert"));
    let insecure = Config { token: token(), insecure: true, ..Config::default() };
    assert!(Agent::bind("0.0.0.0:0", insecure, threads()).is_ok());
}

#[test]
fn tls_is_spoken_with_a_certificate_that_the_client_was_given() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let tls = tapml_rpc::tls::server(&data.join("cert.pem"), &data.join("key.pem")).unwrap();
    let agent = Running::processes(Config { tls: Some(tls), ..Config::default() });
    let mut address = agent.address("emulator", &format!("ca={}", data.join("cert.pem").display()));
    address.tls = true;
    let mut device = RemoteDevice::open(&address).unwrap();
    assert_eq!(count(&mut device, &["one", "two"]).unwrap(), 2);
    // Both directions at once, many records of TLS long.
    let data: Vec<u8> = (0..6_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let buffer = device.create_buffer("large", data.len() as u64).unwrap();
    let mut out = vec![0; data.len()];
    for _ in 0..3 {
        device.write(buffer, 0, &data).unwrap();
        device.read(buffer, 0, &mut out).unwrap();
        assert!(out == data);
    }
    drop(device);
    address.ca = None;
    let error = RemoteDevice::open(&address).err().unwrap();
    assert!(error.to_string().contains("TLS"), "{error}");
    assert!(error.hint().unwrap().contains("ca=FILE"));
    // Plain text to a TLS port, and TLS to a plain one.
    address.tls = false;
    assert!(RemoteDevice::open(&address).is_err());
    let plain = Running::threads(Config::default());
    let mut address = plain.address("emulator", "");
    address.tls = true;
    assert!(RemoteDevice::open(&address).is_err());
    serves_on(&plain);
}
