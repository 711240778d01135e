//! A remote device does what every device must, and what comes through the wire is what a local device gives, bit by bit.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Emulators, Running, adder, count, record_kernels};
use std::time::Duration;
use tapml_device::conformance::{self, CaseCounts, CaseOutcome};
use tapml_device::{Binding, Command, Device, ErrorKind, Extent, FindingKind, Symbols};
use tapml_rpc::agent::Config;
use tapml_rpc::{Offer, client};

#[test]
fn session_process() {
    common::session_process();
}

fn conforms(agent: &Running, name: &str) {
    let mut device = agent.open(name, "");
    let report = conformance::run_all(&mut device).unwrap();
    let CaseCounts { passed, failed, skipped } = report.counts();
    assert_eq!((failed, passed + skipped), (0, conformance::cases().len()), "{report}");
    assert!(skipped <= 1, "{report}");
    assert_eq!(device.memory().0, 0);
}

#[test]
fn the_conformance_suite_passes_through_a_thread() {
    conforms(&Running::threads(Config::default()), "emulator");
}

#[test]
fn the_conformance_suite_passes_through_a_process() {
    conforms(&Running::processes(Config::default()), "emulator");
}

#[test]
fn the_rules_of_the_wire_are_kept() {
    let agent = Running::processes(Config::default());
    for rule in tapml_rpc::conformance::rules() {
        match rule.check(&agent.address("emulator", "")) {
            CaseOutcome::Passed => assert_ne!(rule.name, "wire_wrong_token"),
            CaseOutcome::Skipped(reason) => assert_eq!(reason, "no token was given", "{}", rule.name),
            CaseOutcome::Failed(text) => panic!("{}: {text}", rule.name),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    tapml_testing::write_secret(&file, "a token of some length").unwrap();
    let agent =
        Running::threads(Config { token: Some("a token of some length".into()), ..Config::default() });
    let rule = tapml_rpc::conformance::rules().find(|r| r.name == "wire_wrong_token").unwrap();
    let address = agent.address("emulator", &format!("token-file={}", file.display()));
    assert_eq!(rule.check(&address), CaseOutcome::Passed);
}

/// An agent that answers every request but the hello with done.
fn careless() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            std::thread::spawn(move || answer_anything(tcp.unwrap()));
        }
    });
    address
}

// The size of the error is the library's choice.
#[allow(clippy::result_large_err)]
fn answer_anything(tcp: std::net::TcpStream) {
    use tapml_rpc::wire::{self, Reply, Request, ToClient};
    use tungstenite::handshake::server::{ErrorResponse, Request as Upgrade, Response};
    let protocol = |_: &Upgrade, mut response: Response| -> Result<Response, ErrorResponse> {
        let name = wire::limits::PROTOCOL.parse().unwrap();
        response.headers_mut().insert("sec-websocket-protocol", name);
        Ok(response)
    };
    let Ok(mut socket) = tungstenite::accept_hdr(tcp, protocol) else { return };
    while let Ok(message) = socket.read() {
        let Ok(message) = wire::decode_request(message.into_data()) else { continue };
        let info = Emulators.list()[0].1.clone().unwrap();
        let reply = match message.request {
            Some(Request::Hello(_)) => Reply::Welcome(wire::Welcome {
                version: 1,
                device: Some(wire::convert::info_to_wire(&info)),
                limits: Some(wire::SessionLimits {
                    max_message: 1 << 24,
                    window: 1 << 20,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            _ => Reply::Done(wire::Done {}),
        };
        let bytes = wire::encode(&ToClient { seq: message.seq, reply: Some(reply) });
        if socket.send(tungstenite::Message::Binary(bytes)).is_err() {
            return;
        }
    }
}

#[test]
fn an_agent_that_breaks_the_rules_is_told_what_was_expected_and_found() {
    let place = careless();
    let address = tapml_rpc::Address::parse(&format!("ws://{place}/emulator"), &[]).unwrap();
    let check = |name: &str| {
        let rule = tapml_rpc::conformance::rules().find(|r| r.name == name).unwrap();
        rule.check(&address)
    };
    assert_eq!(check("wire_welcome"), CaseOutcome::Passed);
    for (name, words) in [
        ("wire_other_version", "expected a failure of kind unsupported, found a welcome"),
        ("wire_ping", "expected a pong, found done"),
        ("wire_unknown_device", "expected a failure, found a welcome"),
        ("wire_list_of_devices", "expected `emulator` among them, found []"),
        ("wire_unknown_handles", "expected a failure of kind InvalidInput, found done"),
        ("wire_numbers_rise", "expected the connection's end, found done"),
        ("wire_read_beyond", "found done"),
    ] {
        let CaseOutcome::Failed(text) = check(name) else { panic!("{name} is not told") };
        assert!(text.contains(words), "{name}: {text}");
    }
}

#[test]
fn devices_are_listed_and_unknown_ones_are_refused_with_advice() {
    let agent = Running::processes(Config::default());
    let listed = client::devices(&agent.address("", "")).unwrap();
    let local = Emulators.list();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].0, local[0].0);
    assert_eq!(listed[0].1.as_ref().unwrap(), local[0].1.as_ref().unwrap());
    let error = tapml_rpc::RemoteDevice::open(&agent.address("toaster", "")).err().unwrap();
    assert_eq!((error.kind(), error.hint()), (ErrorKind::Unavailable, Some("there is `emulator`")));
    let error = tapml_rpc::RemoteDevice::open(&agent.address("emulator", "colour=red")).err().unwrap();
    assert!(error.hint().unwrap().contains("profile"), "{error}");
    let error = tapml_rpc::RemoteDevice::open(&agent.address("", "")).err().unwrap();
    assert!(error.hint().unwrap().contains("device list ws://127.0.0.1"), "{error}");
}

#[test]
fn findings_of_a_checking_device_come_home() {
    let agent = Running::processes(Config::default());
    let mut remote = agent.open("emulator", "check=all");
    let mut local = Emulators.open("emulator", "check=all").unwrap();
    let mut desc = adder("beyond");
    desc.source.text = desc
        .source
        .text
        .replace("if id.x < arrayLength(&words) { words[id.x] += 1u; }", "words[id.x + 2u] = 1u;");
    let find = |device: &mut dyn Device| {
        let kernel = device.create_kernel(&desc).unwrap();
        let buffer = device.create_buffer("b", 16).unwrap();
        let one = || Extent::from_dim(1u64);
        let bindings = vec![Binding::whole(buffer)];
        let dispatch =
            Command::Dispatch { label: "d".into(), kernel, bindings, groups: [one(), one(), one()] };
        let list = device.record(&[dispatch]).unwrap();
        device.replay(list, &Symbols::new()).unwrap();
        device.take_findings()
    };
    let found = find(&mut remote);
    assert_eq!(found, find(local.as_mut()));
    assert_eq!((found[0].kind, found[0].line), (FindingKind::OutOfBounds, 4));
    assert!(remote.take_findings().is_empty());
}

#[test]
fn errors_of_calls_that_do_not_wait_surface_at_the_next_read_once() {
    let mut config = Config::default();
    config.settings.memory = 1 << 20;
    let agent = Running::threads(config);
    let mut device = agent.open("emulator", "");
    let large = device.create_buffer("large", 2 << 20).unwrap();
    device.write(large, 0, &[1; 64]).unwrap();
    let error = device.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    device.wait().unwrap();
    let error = device.read(large, 0, &mut [0; 4]).unwrap_err();
    assert!(error.to_string().contains("could not be made"), "{error}");
    device.destroy_buffer(large).unwrap();
    device.wait().unwrap();
    assert_eq!(count(&mut device, &["fine"]).unwrap(), 1);
}

#[test]
fn kernels_and_lists_count_among_the_memory_of_a_session() {
    let mut config = Config::default();
    config.settings.memory = 1 << 20;
    let agent = Running::threads(config);
    let mut device = agent.open("emulator", "");
    let large = |number: u32| {
        let mut kernel = adder(&format!("large {number}"));
        kernel.source.text += &format!("\n// {}", "x".repeat(100_000));
        kernel
    };
    let first = device.create_kernel(&large(0)).unwrap();
    device.create_kernel(&large(1)).unwrap();
    let error = device.create_kernel(&large(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("may have 1048576"), "{error}");
    device.destroy_kernel(first).unwrap();
    device.create_kernel(&large(3)).unwrap();
    let buffer = device.create_buffer("filled", 16).unwrap();
    device.record(&vec![Command::Fill { buffer, word: 1 }; 2000]).unwrap();
    assert_eq!(device.wait().unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(count(&mut device, &["fine"]).unwrap(), 1);
}

#[test]
fn two_clients_use_one_device_at_the_same_time() {
    let agent = Running::processes(Config::default());
    let work = |start: u32| {
        let mut device = agent.open("emulator", "");
        let (buffer, list) = record_kernels(&mut device, &["add", "add again"]).unwrap();
        device.write(buffer, 0, &start.to_le_bytes().repeat(4)).unwrap();
        for _ in 0..50 {
            device.replay(list, &Symbols::new()).unwrap();
        }
        let mut out = [0; 16];
        device.read(buffer, 0, &mut out).unwrap();
        assert_eq!(out, *(start + 100).to_le_bytes().repeat(4));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(0));
        scope.spawn(|| work(1_000_000));
    });
}

#[test]
fn what_the_agent_holds_is_not_sent_again() {
    let agent = Running::processes(Config::default());
    let data: Vec<u8> = (0..9_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (round, expected) in [(0, (9_000_000, 0)), (1, (0, 9_000_000))] {
        let mut device = agent.open("emulator", "");
        let buffer = device.create_buffer("weight", 9_000_000).unwrap();
        device.write(buffer, 0, &data).unwrap();
        let mut out = vec![0; data.len()];
        device.read(buffer, 0, &mut out).unwrap();
        assert!(out == data, "round {round}");
        assert_eq!(device.saved_bytes(), expected, "round {round}");
        // A second write is no first contents: it goes straight.
        device.write(buffer, 0, &data[..4_000_000]).unwrap();
        device.wait().unwrap();
        assert_eq!(device.saved_bytes(), expected);
    }
}

#[test]
fn a_request_that_runs_can_be_given_up() {
    let agent = Running::processes(Config::default());
    let mut device = agent.open("trap", "");
    let stopper = device.stopper();
    let (buffer, list) = record_kernels(&mut device, &["hang"]).unwrap();
    device.replay(list, &Symbols::new()).unwrap();
    let timer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        stopper.stop();
    });
    let error = device.read(buffer, 0, &mut [0; 4]).unwrap_err();
    timer.join().unwrap();
    // The read had not started: it is dropped; or the process was ended with it.
    assert!(matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::DeviceLost), "{error}");
    assert_eq!(count(&mut agent.open("emulator", ""), &["fine"]).unwrap(), 1);
}
