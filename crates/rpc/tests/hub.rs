//! A hub: agents dial in, clients find devices by name and by platform, wait for them, and lose them cleanly.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Emulators, count};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tapml_device::{Device, ErrorKind};
use tapml_rpc::agent::{self, Agent, Isolation, Stopper};
use tapml_rpc::hub::{Config, Hub};
use tapml_rpc::wire::Offer;
use tapml_rpc::{Address, RemoteDevice, client};

/// Something that serves on a thread until it is dropped.
struct Serving {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

fn hub_at(place: &str, config: Config) -> (SocketAddr, Serving) {
    // The port of a hub that has just gone may be taken for a moment.
    let until = Instant::now() + Duration::from_secs(10);
    let hub = loop {
        match Hub::bind(place, config.clone()) {
            Ok(hub) => break hub,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (address, stopper) = (hub.address(), hub.stopper());
    let thread = Some(std::thread::spawn(move || hub.serve().unwrap()));
    (address, Serving { stopper, thread })
}

fn hub(config: Config) -> (SocketAddr, Serving) {
    hub_at("127.0.0.1:0", config)
}

/// The hub's address with options such as `wait=1`.
fn at(hub: SocketAddr, name: &str, options: &[(&str, &str)]) -> Address {
    let mut all: Vec<_> = options.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    all.push(("hub".into(), format!("ws://{hub}")));
    Address::parse(&format!("hub/{name}"), &all).unwrap()
}

fn open(hub: SocketAddr, name: &str) -> tapml_device::Result<RemoteDevice> {
    RemoteDevice::open(&at(hub, name, &[]))
}

fn agent(hub: SocketAddr, name: &str, isolation: Isolation) -> Serving {
    let mut agent = Agent::new(agent::Config::default(), isolation).unwrap();
    agent.join(agent::Hub { address: at(hub, "", &[]), name: name.into() });
    let stopper = agent.stopper();
    let thread = Some(std::thread::spawn(move || agent.serve().unwrap()));
    Serving { stopper, thread }
}

fn threads(hub: SocketAddr, name: &str) -> Serving {
    agent(hub, name, Isolation::Thread(Arc::new(Emulators)))
}

/// Waits until the hub knows so many devices.
fn known(hub: SocketAddr, count: usize) -> Vec<Offer> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let offers = client::offers(&at(hub, "", &[])).unwrap();
        if offers.len() == count {
            return offers;
        }
        assert!(Instant::now() < until, "{offers:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn devices_are_found_by_name_by_agent_and_by_platform() {
    let (place, _hub) = hub(Config::default());
    let _agents = (threads(place, "lab1"), threads(place, "lab2"));
    let offers = known(place, 2);
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
    let none = RemoteDevice::open(&at(place, "webgpu", &[("wait", "1")])).err().unwrap();
    assert_eq!(none.kind(), ErrorKind::Unavailable);
    assert!(none.hint().unwrap().contains("lab1/emulator"), "{none}");
    let refused = open(place, "lab1/trap").err().unwrap();
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
