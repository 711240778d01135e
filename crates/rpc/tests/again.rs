//! Sessions that are opened again after their connection was lost, and devices that fail and are not.
#![allow(clippy::unwrap_used)]

mod common;

use common::hubs::{agent, hub, hub_address, hub_at, threads, wait_for_devices};
use common::outer::Outer;
use common::proxy::{Proxy, Weather};
use common::{Emulators, Running, count, quick};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tapml_device::{Device, Error, ErrorKind, Result};
use tapml_exec::repeat;
use tapml_rpc::agent::{Config, Isolation, Settings};
use tapml_rpc::{Address, Offer, Offered, RemoteDevice};

#[test]
fn session_process() {
    common::session_process();
}

#[test]
fn outer_agent() {
    common::outer::outer_agent();
}

/// A device, and work on it that is counted.
struct Work {
    device: Box<dyn Device>,
    times: usize,
}

impl Work {
    fn start_on(address: &Address) -> Work {
        Work { device: Box::new(RemoteDevice::open(address).unwrap()), times: 0 }
    }

    /// Runs the list of these kernels, again where the connection is lost; the first word.
    fn run(&mut self, names: &[&str]) -> Result<u32> {
        self.times = 0;
        let times = &mut self.times;
        repeat(&mut self.device, |device| {
            *times += 1;
            count(device.as_mut(), names)
        })
    }
}

#[test]
fn a_session_that_the_agent_has_ended_is_opened_again() {
    let settings = Settings { idle: Duration::from_millis(300), ..Config::default().settings };
    let agent = Running::processes(Config { settings, ..Config::default() });
    let mut work = Work::start_on(&agent.address("emulator", ""));
    assert_eq!((work.run(&["a"]).unwrap(), work.times), (1, 1));
    // The agent ends the session of a client that sleeps.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((work.run(&["a", "b"]).unwrap(), work.times), (2, 2));
    std::thread::sleep(Duration::from_secs(2));
    let old = work.device.create_buffer("old", 16).unwrap();
    assert_eq!((work.run(&["a", "b"]).unwrap(), work.times), (2, 2));
    let error = work.device.read(old, 0, &mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "a handle of a lost session: {error}");
}

#[test]
fn a_place_that_the_old_session_still_has_is_waited_for() {
    let settings = Settings { idle: Duration::from_secs(4), ..Config::default().settings };
    let agent = Running::processes(Config { sessions: 1, settings, ..Config::default() });
    let through = |agent: &Running, proxy: &Proxy| {
        let mut address = agent.address("emulator", "answer-within=1");
        address.port = proxy.port;
        Work::start_on(&address)
    };
    let other = Running::threads(Config::default());
    let probe = Proxy::start(other.address.port());
    assert_eq!(through(&other, &probe).run(&["a", "b"]).unwrap(), 2);
    let once = probe.passed_bytes();
    probe.cut();
    // In the second run the way falls silent, so that the agent knows of nothing until its session has been idle for long.
    let weather = Weather { after: [Some(once + once / 4), None], silent: true, ..Weather::default() };
    let proxy = Proxy::start_in(agent.address.port(), weather);
    let mut work = through(&agent, &proxy);
    assert_eq!((work.run(&["a", "b"]).unwrap(), work.times), (2, 1));
    assert_eq!((work.run(&["a", "b"]).unwrap(), work.times), (2, 2));
    proxy.cut();
}

#[test]
fn an_agent_that_is_started_again_is_waited_for() {
    let mut agent = Running::processes(Config::default());
    let place = agent.address.to_string();
    let mut work = Work::start_on(&agent.address("emulator", ""));
    assert_eq!(work.run(&["a"]).unwrap(), 1);
    agent.stop();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        Running::listen(&place, Config::default(), Isolation::Thread(Arc::new(Emulators)))
    });
    assert_eq!((work.run(&["a", "b"]).unwrap(), work.times), (2, 2));
    drop(later.join().unwrap());
}

#[test]
fn an_agent_that_stays_away_ends_with_the_loss_after_the_time_given() {
    for seconds in [0, 1] {
        let mut agent = Running::processes(Config::default());
        let mut work = Work::start_on(&agent.address("emulator", &format!("reconnect={seconds}")));
        assert_eq!(work.run(&["a"]).unwrap(), 1);
        agent.stop();
        let start = Instant::now();
        let error = work.run(&["a"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        assert!(error.to_string().contains("was ended because the agent stops"), "{error}");
        let tried = error.detail("connecting again").unwrap_or_default().to_string();
        assert_eq!(tried.contains("in vain, for "), seconds > 0, "{tried}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(work.times, 1);
    }
}

#[test]
fn a_device_that_fails_is_told_and_not_tried_again() {
    let agent = Running::processes(quick(Duration::from_secs(2)));
    for (kernel, told) in [("abort", "signal"), ("exit", "exit code"), ("hang", "deadline")] {
        let mut work = Work::start_on(&agent.address("trap", ""));
        let error = work.run(&["fine", kernel]).unwrap_err();
        assert_eq!((error.kind(), work.times), (ErrorKind::DeviceLost, 1), "{kernel}: {error}");
        assert!(error.detail(told).is_some() && error.detail("connecting again").is_none(), "{error:?}");
        assert!(error.detail("running").is_some(), "{error:?}");
        // Later work does not open it either.
        assert_eq!(work.run(&["fine"]).unwrap_err().kind(), ErrorKind::DeviceLost);
    }
}

#[test]
fn a_kernel_that_ends_the_agent_itself_each_time_is_not_tried_for_ever() {
    let Some(mut outer) = Outer::start("threads", &[]) else { return };
    let port = |outer: &Outer| outer.address.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let proxy = Arc::new(Proxy::start(port(&outer)));
    let address = Address::parse(&format!("ws://127.0.0.1:{}/trap", proxy.port), &[]).unwrap();
    let mut work = Work::start_on(&address);
    let (over, way) = (Arc::new(AtomicBool::new(false)), proxy.clone());
    let keeper = std::thread::spawn({
        let over = over.clone();
        move || {
            let mut started = 0;
            while !over.load(Ordering::Acquire) {
                if outer.process.try_wait().unwrap().is_some() {
                    outer = Outer::start("threads", &[]).unwrap();
                    started += 1;
                    way.lead_to(port(&outer));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            started
        }
    });
    assert_eq!(work.run(&["fine"]).unwrap(), 1);
    let error = work.run(&["fine", "abort"]).unwrap_err();
    assert_eq!((error.kind(), work.times), (ErrorKind::DeviceLost, 3), "{error}");
    assert!(error.detail("repeated").is_some_and(|text| text.contains("3 times")), "{error:?}");
    assert!(
        error
            .detail("recent")
            .is_some_and(|text| text.contains("create kernel ") && text.contains(" `abort`")),
        "{error:?}"
    );
    over.store(true, Ordering::Release);
    assert!(keeper.join().unwrap() >= 2);
    Arc::into_inner(proxy).unwrap().cut();
}

/// Emulators of another profile.
struct Mobile;

impl Offer for Mobile {
    fn list(&self) -> Vec<Offered> {
        Emulators.list()
    }
    fn open(&self, name: &str, _: &str) -> Result<Box<dyn Device>> {
        Emulators.open(name, "profile=mobile")
    }
}

#[test]
fn another_device_is_not_taken_for_the_one_that_was_lost() {
    let mut agent = Running::threads(Config::default());
    let place = agent.address.to_string();
    let mut work = Work::start_on(&agent.address("emulator", ""));
    assert_eq!(work.run(&["a"]).unwrap(), 1);
    agent.stop();
    let _mobile = Running::listen(&place, Config::default(), Isolation::Thread(Arc::new(Mobile)));
    let error: Error = work.run(&["a"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    let told = error.detail("connecting again").unwrap();
    assert!(told.contains("another device") && told.contains("mobile"), "{told}");
}

#[test]
fn the_same_device_is_found_again_through_a_hub() {
    let (place, mut serving) = hub(tapml_rpc::hub::Config::default());
    let mut lab = agent(place, "lab1", Isolation::Thread(Arc::new(Emulators)));
    let _other = threads(place, "lab2");
    wait_for_devices(place, 2);
    let mut work = Work::start_on(&hub_address(place, "lab1", &[]));
    assert_eq!(work.run(&["a"]).unwrap(), 1);
    lab.stop();
    let _lab = threads(place, "lab1");
    assert_eq!((work.run(&["a", "b"]).unwrap(), work.times), (2, 2));
    assert!(work.device.info().name.contains("lab1"), "{}", work.device.info().name);
    // The hub goes and comes, and its agents with it.
    serving.stop();
    let _serving = hub_at(&place.to_string(), tapml_rpc::hub::Config::default());
    assert_eq!((work.run(&["a", "b"]).unwrap(), work.times), (2, 2));
}
