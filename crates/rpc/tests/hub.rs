//! A hub: agents dial in, clients find devices by name and by platform, wait for them, and lose them cleanly.
#![allow(clippy::unwrap_used)]

mod common;

use common::hubs::{hub, hub_address, hub_at, open, single, threads, wait_for_devices};
use common::{count, record_kernels};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tapml_device::conformance::CaseOutcome;
use tapml_device::{Device, ErrorKind, Symbols};
use tapml_rpc::hub::{Config, Hub, Peers, Table};
use tapml_rpc::wire::{self, AgentToHub, AgentWord, HubWord, Offer, Register};
use tapml_rpc::{Address, RemoteDevice, client, conformance};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

#[test]
fn devices_are_found_by_name_by_agent_and_by_platform() {
    let (place, _hub) = hub(Config::default());
    let _agents = (threads(place, "lab1"), threads(place, "lab2"));
    let offers = wait_for_devices(place, 2);
    assert_eq!(
        offers.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(),
        ["lab1/emulator", "lab2/emulator"]
    );
    assert!(offers.iter().all(|o| o.agent.starts_with("tapml ") && o.sessions == 4 && o.busy == 0));
    for name in ["lab1/emulator", "lab2", "emulator"] {
        let mut device = open(place, name).unwrap();
        let what = &device.info().name;
        assert!(what.contains("hub/lab") && (!name.starts_with("lab1") || what.contains("lab1")), "{what}");
        assert_eq!(count(&mut device, &["a", "b"]).unwrap(), 2);
    }
    // Two at once of a platform are of two agents.
    let names = [(); 2].map(|()| open(place, "emulator").unwrap()).map(|d| d.info().name.clone());
    assert!(names[0] != names[1], "{names:?}");
    let none = RemoteDevice::open(&hub_address(place, "webgpu", &[("wait", "1")])).err().unwrap();
    assert_eq!(none.kind(), ErrorKind::Unavailable);
    assert!(none.hint().unwrap().contains("lab1/emulator"), "{none}");
    let refused = RemoteDevice::open(&hub_address(place, "lab1/trap", &[("wait", "1")])).err().unwrap();
    assert!(refused.to_string().contains("no agent at the hub offers `lab1/trap`"), "{refused}");
}

#[test]
fn large_data_goes_through_unchanged() {
    let (place, _hub) = hub(Config::default());
    let _agent = threads(place, "a");
    let mut device = open(place, "emulator").unwrap();
    let data: Vec<u8> = (0..40 << 20u32).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let buffer = device.create_buffer("large", data.len() as u64).unwrap();
    device.write(buffer, 0, &data).unwrap();
    device.write(buffer, 0, &data[..1 << 20]).unwrap();
    let mut back = vec![0; data.len()];
    device.read(buffer, 0, &mut back).unwrap();
    assert!(back == data);
}

/// An agent of this test's own making, which offers one device.
fn raw(hub: SocketAddr, path: &str) -> WebSocket<TcpStream> {
    let tcp = TcpStream::connect(hub).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!("ws://{hub}/{path}").into_client_request().unwrap();
    tungstenite::client(request, tcp).unwrap().0
}

fn say(socket: &mut WebSocket<TcpStream>, word: AgentWord) {
    socket.send(Message::Binary(wire::encode(&AgentToHub { word: Some(word) }))).unwrap();
}

fn read_word(socket: &mut WebSocket<TcpStream>) -> HubWord {
    loop {
        if let Message::Binary(bytes) = socket.read().unwrap() {
            return wire::decode_hub_word(bytes).unwrap();
        }
    }
}

fn offer(name: &str) -> Offer {
    let limits = Some(wire::Limits::default());
    let info = wire::DeviceInfo { platform: "vulkan".into(), limits, ..Default::default() };
    Offer { name: name.into(), info: Some(info), ..Default::default() }
}

fn register(name: &str, instance: &str, devices: Vec<Offer>) -> AgentWord {
    AgentWord::Register(Register {
        version_min: 1,
        version_max: 1,
        name: name.into(),
        instance: instance.into(),
        devices,
        ..Default::default()
    })
}

/// Asks for a device on a thread of its own; who has it, by number, comes out of the channel.
fn queue(
    hub: SocketAddr,
    priority: &str,
    who: u32,
    tell: &mpsc::Sender<(u32, tapml_device::Result<RemoteDevice>)>,
) -> JoinHandle<()> {
    let (at, tell) = (hub_address(hub, "lab", &[("priority", priority)]), tell.clone());
    let thread = std::thread::spawn(move || tell.send((who, RemoteDevice::open(&at))).unwrap());
    // The queue is in the order of arrival.
    std::thread::sleep(Duration::from_millis(150));
    thread
}

#[test]
fn who_waits_is_served_by_priority_and_then_by_arrival() {
    let (place, _hub) = hub(Config::default());
    let _agent = single(place);
    assert_eq!(wait_for_devices(place, 1)[0].sessions, 1);
    let first = open(place, "lab").unwrap();
    assert_eq!(wait_for_devices(place, 1)[0].busy, 1);
    let (tell, told) = mpsc::channel();
    let waiting: Vec<_> = [("0", 1), ("-1", 2), ("0", 3), ("7", 4)]
        .map(|(priority, who)| queue(place, priority, who, &tell))
        .into();
    // One gives up before its turn, and is in nobody's way.
    let short =
        RemoteDevice::open(&hub_address(place, "lab", &[("wait", "1"), ("priority", "9")])).err().unwrap();
    assert!(short.to_string().contains("none of 1 devices"), "{short}");
    assert!(told.try_recv().is_err(), "the device is leased");
    drop(first);
    for expected in [4, 1, 3, 2] {
        let (who, device) = told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(who, expected);
        assert_eq!(count(&mut device.unwrap(), &["a"]).unwrap(), 1);
    }
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_rules_are_checked_with_one_session_and_end_without_a_free_one() {
    let (place, _hub) = hub(Config::default());
    let _agent = single(place);
    wait_for_devices(place, 1);
    let address = hub_address(place, "emulator", &[("wait", "1")]);
    let check = |name: &str| {
        let rule = conformance::rules().find(|rule| rule.name == name).unwrap();
        rule.check(&address)
    };
    for rule in ["wire_welcome", "wire_ping", "wire_two_sessions", "wire_steps", "wire_turns"] {
        let found = check(rule);
        assert!(matches!(found, CaseOutcome::Passed) || rule == "wire_two_sessions", "{rule}: {found:?}");
    }
    let _held = open(place, "emulator").unwrap();
    match check("wire_ping") {
        CaseOutcome::Failed(text) => assert!(text.contains("became free in time"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_that_vanishes_loses_its_sessions_and_comes_back() {
    let (place, _hub) = hub(Config::default());
    let mut first = threads(place, "lab");
    wait_for_devices(place, 1);
    let mut device = open(place, "lab").unwrap();
    assert_eq!(count(&mut device, &["a"]).unwrap(), 1);
    let (_, list) = record_kernels(&mut device, &["slow"]).unwrap();
    first.stop();
    let error = device.replay(list, &Symbols::new()).and_then(|()| device.wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    drop(device);
    assert!(wait_for_devices(place, 0).is_empty());
    // Who asks now waits for it to come back.
    let waiting = std::thread::spawn(move || open(place, "lab"));
    std::thread::sleep(Duration::from_millis(300));
    let _second = threads(place, "lab");
    assert_eq!(count(&mut waiting.join().unwrap().unwrap(), &["a"]).unwrap(), 1);
}

#[test]
fn a_hub_that_is_restarted_finds_its_agents_again() {
    let (place, mut before) = hub(Config::default());
    let _agent = threads(place, "lab");
    wait_for_devices(place, 1);
    let mut device = open(place, "lab").unwrap();
    assert_eq!(count(&mut device, &["a"]).unwrap(), 1);
    before.stop();
    let error = device.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    let (_, _after) = hub_at(&place.to_string(), Config::default());
    // The agent may not be there yet: the hub lets the client wait.
    assert_eq!(count(&mut open(place, "lab").unwrap(), &["a"]).unwrap(), 1);
}

#[test]
fn an_agent_that_refuses_or_does_not_come_is_told() {
    let (place, _hub) = hub(Config::default());
    let mut rude = raw(place, "agent");
    say(&mut rude, register("rude", "1", vec![offer("vulkan")]));
    assert!(matches!(read_word(&mut rude), HubWord::Registered(known) if known.name == "rude"));
    let client = std::thread::spawn(move || open(place, "vulkan"));
    let HubWord::Open(asked) = read_word(&mut rude) else { panic!("no session") };
    assert_eq!((asked.target.as_str(), asked.session.len()), ("vulkan", 32));
    say(
        &mut rude,
        AgentWord::Refused(wire::Refused {
            session: asked.session,
            reason: "no\u{1b}[31m".into(),
            busy: false,
        }),
    );
    let error = client.join().unwrap().err().unwrap();
    assert!(error.to_string().contains("rude/vulkan: the agent refuses: no\\u{1b}"), "{error}");
    // It closes in the middle of opening: the client goes on waiting, and gets another.
    let client = std::thread::spawn(move || open(place, "vulkan"));
    assert!(matches!(read_word(&mut rude), HubWord::Open(_)));
    drop(rude);
    let mut other = raw(place, "agent");
    say(&mut other, register("other", "2", vec![offer("vulkan")]));
    assert!(matches!(read_word(&mut other), HubWord::Registered(_)));
    let HubWord::Open(asked) = read_word(&mut other) else { panic!("no session") };
    let mut session = raw(place, &format!("session/{}", asked.session));
    let hello = loop {
        if let Message::Binary(bytes) = session.read().unwrap() {
            break wire::decode_request(bytes).unwrap();
        }
    };
    let Some(wire::Request::Hello(hello)) = hello.request else { panic!("no hello") };
    assert_eq!((hello.target.as_str(), hello.token.as_str()), ("vulkan", ""));
    // It leaves without a word.
    drop(session);
    let error = client.join().unwrap().err().unwrap();
    assert!(error.to_string().contains("agent"), "{error}");
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    // A session's address is good for one time.
    let again = tungstenite::client(
        format!("ws://{place}/session/{}", asked.session).into_client_request().unwrap(),
        TcpStream::connect(place).unwrap(),
    );
    assert!(again.is_err());
}

#[test]
fn an_agent_takes_the_place_of_its_own_dead_connection_only() {
    let (place, _hub) = hub(Config::default());
    let mut half_open = raw(place, "agent");
    say(&mut half_open, register("tab", "1", vec![offer("webgpu")]));
    assert!(matches!(read_word(&mut half_open), HubWord::Registered(_)));
    let mut stranger = raw(place, "agent");
    say(&mut stranger, register("tab", "2", vec![offer("webgpu")]));
    assert!(
        matches!(read_word(&mut stranger), HubWord::Failed(f) if f.message.contains("another agent is named `tab`"))
    );
    let mut again = raw(place, "agent");
    say(&mut again, register("tab", "1", vec![offer("webgpu"), offer("webgpu:1")]));
    assert!(matches!(read_word(&mut again), HubWord::Registered(_)));
    assert!(half_open.read().is_err() || half_open.read().is_err(), "the old connection is closed");
    assert_eq!(wait_for_devices(place, 2).len(), 2);
    say(&mut again, AgentWord::Heartbeat(wire::Heartbeat {}));
    assert!(matches!(read_word(&mut again), HubWord::Heartbeat(_)));
    // What it offers may change.
    say(&mut again, register("tab", "1", vec![offer("webgpu")]));
    assert!(matches!(read_word(&mut again), HubWord::Registered(_)));
    assert_eq!(wait_for_devices(place, 1)[0].name, "tab/webgpu");
}

#[test]
fn lies_and_garbage_of_agents_are_refused() {
    let (place, _hub) = hub(Config::default());
    let refused = |word: AgentWord| {
        let mut agent = raw(place, "agent");
        say(&mut agent, word);
        let HubWord::Failed(failed) = read_word(&mut agent) else { panic!("let in") };
        failed.message
    };
    let long = "x".repeat(65);
    for name in ["a/b", "\u{1b}[2J", "a b", &long, "ü"] {
        assert!(refused(register(name, "1", vec![])).contains("no name of an agent"), "{name}");
        assert!(refused(register("a", "1", vec![offer(name)])).contains("no name of a device"), "{name}");
    }
    assert!(refused(register("webgpu", "1", vec![])).contains("a platform's word"));
    assert!(refused(register("a", &"i".repeat(300), vec![])).contains("longer"));
    assert!(refused(register("a", "1", vec![offer("vulkan"), offer("vulkan")])).contains("twice"));
    let many = (0..65).map(|i| offer(&format!("vulkan:{i}"))).collect();
    assert!(refused(register("a", "1", many)).contains("at most 64"));
    let mut loud = offer("vulkan");
    loud.info.as_mut().unwrap().name = "GPU\n\u{7}".into();
    assert!(refused(register("a", "1", vec![loud])).contains("control characters"));
    let old = Register { version_min: 7, version_max: 9, ..Default::default() };
    assert!(refused(AgentWord::Register(old)).contains("the agent 7 to 9"));
    assert!(refused(AgentWord::Heartbeat(wire::Heartbeat {})).contains("register first"));
    for garbage in [vec![0xff; 64], vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], Vec::new()] {
        let mut agent = raw(place, "agent");
        agent.send(Message::Binary(garbage.into())).unwrap();
        assert!(matches!(read_word(&mut agent), HubWord::Failed(_)));
    }
    // A frame that claims a terabyte ends the connection before anything is kept for it.
    use std::io::{Read, Write};
    let mut agent = raw(place, "agent");
    let claim = [&[0x82, 0xff], (1u64 << 40).to_be_bytes().as_slice(), &[0; 4]].concat();
    agent.get_mut().write_all(&claim).unwrap();
    let mut rest = Vec::new();
    agent.get_mut().read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 256, "it says that it ends, and ends");
    assert!(wait_for_devices(place, 0).is_empty());
    let unknown = tungstenite::client(
        format!("ws://{place}/session/0123").into_client_request().unwrap(),
        TcpStream::connect(place).unwrap(),
    );
    assert!(unknown.is_err());
    let _agent = threads(place, "honest");
    assert_eq!(count(&mut open(place, "honest").unwrap(), &["a"]).unwrap(), 1);
}

#[test]
fn tokens_keep_clients_and_agents_apart() {
    let tokens = Config {
        token: Some("the token of clients".into()),
        agent_token: Some("the token of agents".into()),
        ..Config::default()
    };
    let (place, _hub) = hub(tokens);
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join(text.replace(' ', "-"));
        tapml_testing::write_secret(&path, text).unwrap();
        path.display().to_string()
    };
    let (clients, agents) = (file("the token of clients"), file("the token of agents"));
    let join = |token: &str| {
        let mut agent = raw(place, "agent");
        let AgentWord::Register(word) = register("lab", "1", vec![offer("vulkan")]) else { unreachable!() };
        say(&mut agent, AgentWord::Register(Register { token: token.into(), ..word }));
        read_word(&mut agent)
    };
    assert!(matches!(join("the token of clients"), HubWord::Failed(f) if f.message.contains("token")));
    assert!(matches!(join("the token of agents"), HubWord::Registered(_)));
    let ask = |token: &str| client::offers(&hub_address(place, "", &[("token-file", token)]));
    assert!(ask(&agents).unwrap_err().to_string().contains("token is not accepted"));
    assert!(ask(&clients).is_ok());
    let lease = RemoteDevice::open(&hub_address(place, "vulkan", &[("token-file", &agents)])).err().unwrap();
    assert!(lease.to_string().contains("token is not accepted"), "{lease}");
}

#[test]
fn a_page_is_served_and_other_sites_may_not_connect() {
    use std::io::{Read, Write};
    let (place, _hub) = hub(Config { origins: vec!["https://allowed".into()], ..Config::default() });
    let ask = |text: String| {
        let mut tcp = TcpStream::connect(place).unwrap();
        tcp.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = tcp.set_read_timeout(Some(Duration::from_secs(5)));
        let mut bytes = [0; 4096];
        while let Ok(have @ 1..) = tcp.read(&mut bytes) {
            answer += &String::from_utf8_lossy(&bytes[..have]);
            if answer.contains("101 Switching") {
                break;
            }
        }
        answer
    };
    let get = |path: &str| ask(format!("GET {path} HTTP/1.1\r\nHost: {place}\r\n\r\n"));
    assert!(get("/").starts_with("HTTP/1.1 200 OK"), "{}", get("/"));
    assert!(get("/../../etc/passwd").starts_with("HTTP/1.1 404"));
    let upgrade = |origin: &str, host: &str| {
        ask(format!(
            "GET /agent HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ))
    };
    let own = place.to_string();
    assert!(upgrade(&format!("http://{own}"), &own).contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert!(upgrade("https://allowed", &own).contains("101 Switching"));
    assert!(upgrade("http://evil.example", &own).contains("403 Forbidden"));
    assert!(upgrade("http://evil.example:7071", "evil.example:7071").contains("403 Forbidden"));
}

/// The status line that a hub answers these bytes with.
fn status(place: SocketAddr, text: &str) -> String {
    use std::io::{BufRead, BufReader, Write};
    let mut tcp = TcpStream::connect(place).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    tcp.write_all(text.as_bytes()).unwrap();
    let mut line = String::new();
    // What is refused while it is still sent may end without a line.
    let _ = BufReader::new(tcp).read_line(&mut line);
    line
}

#[test]
fn heads_are_bounded_and_a_path_tells_who_asks() {
    let (place, _hub) = hub(Config::default());
    let ask = |head: String| status(place, &format!("{head}\r\nHost: h\r\n\r\n"));
    let open = |path: &str| {
        ask(format!(
            "GET {path} HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        ))
    };
    for path in ["/", "/client?x=1", "/forward", "/agent"] {
        assert!(open(path).contains(" 101 "), "{path}: {}", open(path));
    }
    for path in ["/agents", "/session", "//agent", "/session/7f"] {
        assert!(open(path).contains(" 404 "), "{path}: {}", open(path));
    }
    // Who asks for no WebSocket gets a page.
    for (path, status) in [("/", 200), ("/style.css?x=1", 200), ("/agent", 404), ("/session/7f", 404)] {
        let found = ask(format!("GET {path} HTTP/1.1"));
        assert!(found.contains(&format!(" {status} ")), "{path}: {found}");
    }
    assert!(ask("POST / HTTP/1.1".into()).contains(" 405 "));
    assert!(ask("GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc".into()).contains(" 400 "));
    let bad = [
        "\u{16}\u{3}\u{1} this is no HTTP".to_string(),
        format!("GET /{} HTTP/1.1", "x".repeat(16 << 10)),
        format!("GET / HTTP/1.1\r\n{}a: b", "a: b\r\n".repeat(64)),
    ];
    for head in bad {
        let found = ask(head.clone());
        assert!(found.is_empty() || found.contains(" 4"), "{head}: {found}");
    }
    assert!(ask("GET / HTTP/1.1".into()).contains(" 200 "), "it serves on");
}

#[test]
fn a_list_comes_from_whichever_hub_answers() {
    let (there, _hub) = hub(Config::default());
    let _agent = threads(there, "a");
    wait_for_devices(there, 1);
    let hubs = format!("ws://127.0.0.1:1,ws://{there}");
    let address = Address::parse("hub/emulator", &[("hub".into(), hubs)]).unwrap();
    assert_eq!(client::offers(&address).unwrap()[0].name, "a/emulator");
    assert_eq!(count(&mut RemoteDevice::open(&address).unwrap(), &["add"]).unwrap(), 1);
}

/// A table that only this hub writes to.
struct Alone;

impl Table for Alone {
    fn version(&self) -> u64 {
        0
    }
    fn rows(&self) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }
    fn put(&self, _: &str, _: &[u8]) {}
    fn create(&self, _: &str, _: &[u8]) -> tapml_device::Result<bool> {
        Ok(true)
    }
    fn remove(&self, _: &str) {}
    fn trouble(&self) -> Option<String> {
        None
    }
}

#[test]
fn a_hub_with_peers_says_where_it_is_reached() {
    let peers = |url: Option<&str>| Peers { table: Arc::new(Alone), url: url.map(Into::into), ca: None };
    let config = |url| Config {
        peers: Some(peers(url)),
        token: Some("a token".into()),
        insecure: true,
        ..Config::default()
    };
    let refused = Hub::bind("0.0.0.0:0", config(None)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.hint().unwrap().contains("--advertise ws://HOST:"), "{refused}");
    assert!(Hub::bind("0.0.0.0:0", config(Some("ws://lab1:7071"))).is_ok());
    assert!(Hub::bind("127.0.0.1:0", config(None)).is_ok());
}
