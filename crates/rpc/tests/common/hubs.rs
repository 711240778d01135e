//! Hubs in this process, agents that dial in, and how clients ask for their devices.

use super::Emulators;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tapml_device::Device;
use tapml_rpc::agent::{self, Agent, Isolation, Stopper};
use tapml_rpc::hub::{Config, Hub};
use tapml_rpc::wire::Offer;
use tapml_rpc::{Address, RemoteDevice, client};

/// Something that serves on a thread until it is dropped.
pub struct Serving {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Ends it.
    pub fn stop(&mut self) {
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

pub fn hub_at(place: &str, config: Config) -> (SocketAddr, Serving) {
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

pub fn hub(config: Config) -> (SocketAddr, Serving) {
    hub_at("127.0.0.1:0", config)
}

/// The hub's address with options such as `wait=1`.
pub fn hub_address(hub: SocketAddr, name: &str, options: &[(&str, &str)]) -> Address {
    let mut all: Vec<_> = options.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    all.push(("hub".into(), format!("ws://{hub}")));
    Address::parse(&format!("hub/{name}"), &all).unwrap()
}

pub fn open(hub: SocketAddr, name: &str) -> tapml_device::Result<RemoteDevice> {
    RemoteDevice::open(&hub_address(hub, name, &[]))
}

pub fn agent(hub: SocketAddr, name: &str, isolation: Isolation) -> Serving {
    agent_at(hub_address(hub, "", &[]), name, agent::Config::default(), isolation)
}

/// An agent that dials this hub.
pub fn agent_at(hub: Address, name: &str, config: agent::Config, isolation: Isolation) -> Serving {
    let mut agent = Agent::new(config, isolation).unwrap();
    agent.join(agent::Hub { address: hub, name: name.into() });
    let stopper = agent.stopper();
    let thread = Some(std::thread::spawn(move || agent.serve().unwrap()));
    Serving { stopper, thread }
}

pub fn threads(hub: SocketAddr, name: &str) -> Serving {
    agent(hub, name, Isolation::Thread(Arc::new(Emulators)))
}

/// The same for a hub that wants the token of this file.
pub fn threads_with(hub: SocketAddr, name: &str, token: &Path) -> Serving {
    let address = hub_address(hub, "", &[("token-file", &token.display().to_string())]);
    agent_at(address, name, agent::Config::default(), Isolation::Thread(Arc::new(Emulators)))
}

/// Waits until the hub knows so many devices.
pub fn wait_for_devices(hub: SocketAddr, count: usize) -> Vec<Offer> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let offers = client::offers(&hub_address(hub, "", &[])).unwrap();
        if offers.len() == count {
            return offers;
        }
        assert!(Instant::now() < until, "{offers:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An agent whose emulator takes one session at once.
pub fn single(hub: SocketAddr) -> Serving {
    struct One;
    impl tapml_rpc::Offer for One {
        fn list(&self) -> Vec<tapml_rpc::Offered> {
            let one = |(name, info): tapml_rpc::Offered| {
                // A device of its own sort is not shared.
                let info =
                    info.map(|i| tapml_device::DeviceInfo { kind: tapml_device::AdapterKind::Discrete, ..i });
                (name, info)
            };
            Emulators.list().into_iter().map(one).collect()
        }
        fn open(&self, name: &str, options: &str) -> tapml_device::Result<Box<dyn Device>> {
            Emulators.open(name, options)
        }
    }
    agent(hub, "lab", Isolation::Thread(Arc::new(One)))
}
