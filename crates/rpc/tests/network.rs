//! Networks that delay, lose packets, fall silent and break in the middle of a message: what a client gets is right, or an
//! error that says what happened, and it gets it in time.
#![allow(clippy::unwrap_used)]

mod common;

use common::proxy::{Proxy, Weather};
use common::{Running, hubs};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tapml_device::{Device, ErrorKind, Result, Symbols};
use tapml_rpc::agent::Config;
use tapml_rpc::{Address, RemoteDevice};

/// Bytes of the large buffer: several messages.
const LARGE: usize = 5 << 20;

fn pattern(round: usize) -> Vec<u8> {
    (0..LARGE).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ round as u8).collect()
}

/// Kernels, small and large transfers; fails only by what the device or the network says.
fn work(address: &Address) -> Result<()> {
    let mut device = RemoteDevice::open(address)?;
    let (counted, list) = common::record_kernels(&mut device, &["a", "b"])?;
    let large = device.create_buffer("large", LARGE as u64)?;
    for round in 1..=2 {
        device.write(large, 0, &pattern(round))?;
        device.replay(list, &Symbols::new())?;
        let mut word = [0; 4];
        device.read(counted, 0, &mut word)?;
        assert_eq!(u32::from_le_bytes(word), 2 * round as u32, "a wrong result");
        let mut back = vec![0; LARGE];
        device.read(large, 0, &mut back)?;
        assert!(back == pattern(round), "wrong bytes");
    }
    device.wait()
}

/// The same through a network like this; how long it took.
fn run_through(agent: &Running, weather: Weather, within: &str) -> (Result<()>, Duration) {
    let proxy = Proxy::start_in(agent.address.port(), weather);
    let mut address = agent.address("emulator", &format!("answer-within={within}"));
    address.port = proxy.port;
    let start = Instant::now();
    let done = work(&address);
    let took = start.elapsed();
    proxy.cut();
    (done, took)
}

#[test]
fn a_network_that_delays_and_loses_packets_gives_what_a_good_one_gives() {
    let agent = Running::threads(Config::default());
    let loss = (20, Duration::from_millis(200));
    let weather = Weather { delay: Duration::from_millis(200), loss, ..Weather::default() };
    let (done, took) = run_through(&agent, weather, "20");
    done.unwrap();
    assert!(took > Duration::from_secs(2), "the network was not bad: {took:?}");
}

#[test]
fn bad_networks_on_both_sides_of_a_hub_give_what_good_ones_give() {
    let loss = (20, Duration::from_millis(200));
    let weather = Weather { delay: Duration::from_millis(200), loss, ..Weather::default() };
    let (place, _hub) = hubs::hub(tapml_rpc::hub::Config::default());
    let [near, far] = [(); 2].map(|()| Proxy::start_in(place.port(), weather));
    let through = |proxy: &Proxy| SocketAddr::new(place.ip(), proxy.port);
    let _agent = hubs::threads(through(&far), "far");
    hubs::wait_for_devices(place, 1);
    let start = Instant::now();
    work(&hubs::hub_address(through(&near), "far", &[])).unwrap();
    assert!(start.elapsed() > Duration::from_secs(4), "the networks were not bad: {:?}", start.elapsed());
    near.cut();
    far.cut();
}

#[test]
fn a_connection_cut_anywhere_ends_right_or_with_a_clear_error() {
    let agent = Running::threads(Config { sessions: 64, ..Config::default() });
    let cuts =
        [4_000_000, 60, 180, 300, 420, 1_000, 5_000, 70_000, 4_000_000, 4_194_400, 9_500_000, 15_000_000];
    let mut finished = 0;
    for at in cuts {
        for after in [[Some(at), None], [None, Some(at)]] {
            let (done, took) = run_through(&agent, Weather { after, ..Weather::default() }, "5");
            assert!(took < Duration::from_secs(30), "cut after {after:?}: {took:?}");
            match done {
                Ok(()) => finished += 1,
                Err(error) => {
                    let text = error.to_string();
                    // Before the welcome nobody has answered, afterwards the device is lost.
                    assert!(
                        matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Unavailable),
                        "cut after {after:?}: {:?}: {text}",
                        error.kind()
                    );
                    assert!(
                        text.contains("clos") || text.contains("broke") || text.contains("end"),
                        "{text}"
                    );
                    assert!(error.hint().is_some(), "{text}");
                }
            }
        }
    }
    assert!(finished < cuts.len(), "hardly anything was cut");
    common::count(&mut agent.open("emulator", ""), &["fine"]).unwrap();
}

#[test]
fn a_network_that_falls_silent_in_the_middle_of_a_message_is_told_in_time() {
    let agent = Running::threads(Config { sessions: 64, ..Config::default() });
    for after in [[Some(300), None], [Some(4_500_000), None], [None, Some(500)], [None, Some(4_500_000)]] {
        let (done, took) = run_through(&agent, Weather { after, silent: true, ..Weather::default() }, "1");
        let error = done.unwrap_err();
        assert!(took < Duration::from_secs(90), "silent after {after:?}: {took:?}");
        assert!(matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::Unavailable), "{error}");
        let text = error.to_string();
        assert!(text.contains("no sign of life") || text.contains("has taken nothing"), "{text}");
    }
}

#[test]
fn an_agent_that_takes_nothing_is_told_in_time() {
    let agent = Running::threads(Config::default());
    let weather = Weather { after: [Some(100_000), None], silent: true, ..Weather::default() };
    let proxy = Proxy::start_in(agent.address.port(), weather);
    let mut address = agent.address("emulator", "answer-within=1");
    address.port = proxy.port;
    let mut device = RemoteDevice::open(&address).unwrap();
    // More than the system keeps on the way, and less than the window.
    let buffer = device.create_buffer("large", 44 << 20).unwrap();
    let start = Instant::now();
    let error = device.write(buffer, 4, &vec![1; 40 << 20]).and_then(|()| device.wait()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    assert!(error.to_string().contains("has taken nothing of what was sent to it for 3 s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(30));
    proxy.cut();
}
