//! Devices that faults are put into: a kernel that does not end is stopped after a deadline, and costs that device alone.
//!
//! The emulator stops by itself. A device of the machine runs in a process of its own, a session of an agent on the
//! loopback interface: nothing else ends a kernel that has been handed to a driver.

use anyhow::{Context, Result};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tapml::device::{AdapterKind, Device, DeviceInfo};
use tapml::offer::Local;
use tapml::platform::{self, PlatformSpec};
use tapml::rpc::agent::{Agent, Config, Isolation, Settings, Stopper};

/// Option of the emulator that stops a kernel.
const TIMEOUT: &str = "timeout";

/// Opens devices under a deadline.
pub struct Guard {
    /// How devices are opened: directly, or through the agent.
    spec: PlatformSpec,
    /// Stopped and awaited when the guard is dropped.
    agent: Option<(Stopper, JoinHandle<tapml::Result<()>>)>,
}

impl Guard {
    /// A guard of the device `spec`, described by `info`, of which at most `devices` are open at once. With a deadline of
    /// 0 seconds devices are opened as they are. So are devices of other machines, whose agents keep their own.
    ///
    /// # Errors
    /// If the device is not here, or the agent cannot listen at the loopback interface.
    pub fn new(spec: &PlatformSpec, info: &DeviceInfo, devices: usize, deadline: u64) -> Result<Guard> {
        let mut spec = spec.clone();
        if deadline == 0 || spec.is_remote() {
            return Ok(Guard { spec, agent: None });
        }
        if spec.word == "emulator" {
            if spec.option(TIMEOUT).is_none() {
                spec.options.push((TIMEOUT.into(), deadline.to_string()));
            }
            return Ok(Guard { spec, agent: None });
        }
        let settings = Settings { deadline: Duration::from_secs(deadline), ..Config::default().settings };
        // A lost session may not have ended when its successor comes.
        let config = Config { sessions: 2 * devices + 2, settings, ..Config::default() };
        // Port 0: the system chooses a free one, and only this machine can connect.
        let agent = Agent::bind("127.0.0.1:0", config, isolation(&spec, threads(info, devices))?)?;
        // Options are the agent's; a client names the device alone.
        let name = PlatformSpec { options: Vec::new(), ..spec.clone() };
        let remote = PlatformSpec::parse(&format!("ws://{}/{name}", agent.address()))?;
        let stopper = agent.stopper();
        let served = std::thread::Builder::new().name("guard".into()).spawn(move || agent.serve());
        let served = served.context("could not start a thread")?;
        Ok(Guard { spec: remote, agent: Some((stopper, served)) })
    }

    /// Opens a device.
    pub fn open(&self) -> tapml::Result<Box<dyn Device>> {
        platform::open_device(&self.spec)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((stopper, served)) = self.agent.take() {
            stopper.stop();
            drop(served.join());
        }
    }
}

/// Processors for each device, if the device is processors: all of them for each would be in each other's way.
/// `None` for other devices.
fn threads(info: &DeviceInfo, devices: usize) -> Option<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    (info.kind == AdapterKind::Cpu).then_some((all / devices.max(1)).max(1))
}

/// Every session is this very program once more.
fn isolation(spec: &PlatformSpec, threads: Option<usize>) -> Result<Isolation> {
    let target = spec.to_string();
    // A device that is not here is told now, not by a session.
    Local::new(std::slice::from_ref(&target))?;
    let program = std::env::current_exe().context("this program does not find itself")?;
    Ok(Isolation::Process(Arc::new(move || {
        let mut command = Command::new(&program);
        command.args(["device", "session", "--target", &target]);
        if let Some(threads) = threads {
            // What Mesa's llvmpipe reads.
            command.env("LP_NUM_THREADS", threads.to_string());
        }
        command
    })))
}
