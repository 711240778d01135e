//! What a hub counts: places that exist, also where an agent has fewer than its devices, and whom it blames while it waits.
#![allow(clippy::unwrap_used)]

mod common;

use common::hubs::{Serving, agent_at, hub, hub_address, open, threads, wait_for_devices};
use common::{Emulators, count};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tapml_device::{Error, ErrorKind, Result};
use tapml_rpc::agent::{self, Agent, Isolation};
use tapml_rpc::hub::{Config, Peers, Table};
use tapml_rpc::{Address, RemoteDevice};

fn of_sessions(sessions: usize) -> agent::Config {
    agent::Config { sessions, ..agent::Config::default() }
}

fn isolation() -> Isolation {
    Isolation::Thread(Arc::new(Emulators))
}

/// An agent that takes so many sessions at once.
fn narrow(hub: SocketAddr, sessions: usize) -> Serving {
    agent_at(hub_address(hub, "", &[]), "lab", of_sessions(sessions), isolation())
}

#[test]
fn an_agents_sessions_are_all_that_the_hub_gives_away() {
    let (place, _hub) = hub(Config::default());
    let _agent = narrow(place, 1);
    assert_eq!(wait_for_devices(place, 1)[0].sessions, 1, "the emulator alone would take 4");
    // Each waits for the one before, whose session has hardly ended.
    let clients: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || count(&mut open(place, "lab/emulator")?, &["a"])))
        .collect();
    for client in clients {
        assert_eq!(client.join().unwrap().unwrap(), 1);
    }
}

#[test]
fn a_place_that_somebody_took_past_the_hub_is_waited_for() {
    let (place, _hub) = hub(Config::default());
    let mut agent = Agent::bind("127.0.0.1:0", of_sessions(1), isolation()).unwrap();
    agent.join(agent::Hub { address: hub_address(place, "", &[]), name: "lab".into() });
    let (direct, stopper) = (agent.address(), agent.stopper());
    let thread = std::thread::spawn(move || agent.serve().unwrap());
    wait_for_devices(place, 1);
    let address = Address::parse(&format!("ws://{direct}/emulator"), &[]).unwrap();
    let held = RemoteDevice::open(&address).unwrap();
    let late = RemoteDevice::open(&hub_address(place, "lab", &[("wait", "2")])).err().unwrap();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    assert!(late.to_string().contains("none of 1 devices"), "{late}");
    let waiting = std::thread::spawn(move || count(&mut open(place, "lab")?, &["a"]));
    std::thread::sleep(Duration::from_millis(700));
    assert!(!waiting.is_finished(), "the place is taken");
    drop(held);
    assert_eq!(waiting.join().unwrap().unwrap(), 1);
    stopper.stop();
    thread.join().unwrap();
}

/// A broker that can be away.
#[derive(Default)]
struct Moody {
    away: AtomicBool,
}

impl Table for Moody {
    fn version(&self) -> u64 {
        0
    }
    fn rows(&self) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }
    fn put(&self, _: &str, _: &[u8]) {}
    fn create(&self, _: &str, _: &[u8]) -> Result<bool> {
        match self.trouble() {
            Some(trouble) => Err(Error::new(ErrorKind::Unavailable, trouble)),
            None => Ok(true),
        }
    }
    fn remove(&self, _: &str) {}
    fn trouble(&self) -> Option<String> {
        self.away.load(Ordering::Acquire).then(|| "the broker is away".into())
    }
}

#[test]
fn clients_hear_of_a_broker_that_is_away_and_are_served_when_it_is_back() {
    let table = Arc::new(Moody::default());
    let peers = Some(Peers { table: table.clone(), url: None, ca: None });
    let (place, _hub) = hub(Config { peers, ..Config::default() });
    let _agent = threads(place, "lab");
    wait_for_devices(place, 1);
    let mut before = open(place, "lab").unwrap();
    table.away.store(true, Ordering::Release);
    assert_eq!(count(&mut before, &["a"]).unwrap(), 1, "open sessions go on");
    for name in ["lab", "of-another-hub"] {
        let late = RemoteDevice::open(&hub_address(place, name, &[("wait", "1")])).err().unwrap();
        assert_eq!(late.kind(), ErrorKind::Unavailable);
        assert!(
            late.to_string().contains("the broker is away") && !late.to_string().contains("free"),
            "{late}"
        );
    }
    let start = Instant::now();
    let waiting = std::thread::spawn(move || count(&mut open(place, "lab")?, &["a"]));
    std::thread::sleep(Duration::from_millis(500));
    table.away.store(false, Ordering::Release);
    assert_eq!(waiting.join().unwrap().unwrap(), 1);
    assert!(start.elapsed() < Duration::from_secs(10));
}
