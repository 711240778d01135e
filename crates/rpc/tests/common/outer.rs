//! An agent in a process of its own, whose children are its sessions.

use super::{Running, children};
use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tapml_rpc::agent::Config;
use tapml_rpc::{Address, RemoteDevice};

/// See the module.
pub struct Outer {
    pub process: Child,
    pub address: String,
}

/// What an agent that other machines can reach wants to be shown.
pub const TOKEN: &str = "a token for the test's own network";

/// The body of the test `outer_agent`: an agent if this process was started for one.
pub fn outer_agent() {
    let Ok(how) = std::env::var("TAPML_TEST_OUTER") else { return };
    let config = Config { sessions: 64, ..Config::default() };
    let agent = match how.as_str() {
        "threads" => Running::threads(config),
        "processes" => Running::processes(config),
        _ => Running::reachable(Config { token: Some(TOKEN.into()), insecure: true, ..config }),
    };
    eprintln!("outer agent at {}", agent.address);
    std::thread::sleep(Duration::from_secs(600));
}

/// This test's own executable, which runs only this test, behind a command such as `ip netns exec`.
pub fn own_executable(test: &str, within: &[&str]) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match within {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command.args(["--exact", test, "--nocapture"]);
    command
}

impl Outer {
    /// Starts one whose sessions are `threads`, `processes`, or processes of an agent that others can reach.
    pub fn start(how: &str, within: &[&str]) -> Option<Outer> {
        if !cfg!(target_os = "linux") {
            tapml_testing::skip("linux", "processes are found through /proc");
            return None;
        }
        let mut command = own_executable("outer_agent", within);
        let mut process = command.env("TAPML_TEST_OUTER", how).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines.find_map(|l| l.unwrap().strip_prefix("outer agent at ").map(str::to_string));
        std::thread::spawn(move || lines.for_each(drop));
        Some(Outer { process, address: line.unwrap() })
    }

    /// Opens a device.
    pub fn open(&self, name: &str) -> RemoteDevice {
        let address = Address::parse(&format!("ws://{}/{name}", self.address), &[]);
        RemoteDevice::open(&address.unwrap()).unwrap()
    }

    /// The ids of the sessions' processes, once there are no more than `most`; those of sessions that just ended are
    /// waited for.
    pub fn sessions(&self, most: usize, within: Duration) -> Vec<u32> {
        let until = Instant::now() + within;
        loop {
            let found = children(self.process.id());
            if found.len() <= most || Instant::now() > until {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
