//! What the tests share: agents in this process or in processes of their own, and devices that misbehave on demand.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used)]

pub mod hubs;
pub mod outer;
pub mod proxy;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tapml_device::{
    Binding, BindingKind, BufferId, Command as Do, Device, Error, ErrorKind, Extent, KernelDesc, KernelId,
    Language, ListId, Result, Source, Symbols,
};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_rpc::agent::{Agent, Config, Isolation, Settings, Stopper};
use tapml_rpc::{Address, Offer, Offered, RemoteDevice};

/// The emulator, and `trap`: an emulator that does what the names of kernels say.
pub struct Emulators;

impl Offer for Emulators {
    fn list(&self) -> Vec<Offered> {
        vec![("emulator".into(), Emulator::new(EmulatorOptions::default()).map(|e| e.info().clone()))]
    }

    fn open(&self, name: &str, options: &str) -> Result<Box<dyn Device>> {
        let emulator = Emulator::new(EmulatorOptions::parse(options)?)?;
        match name {
            "emulator" => Ok(Box::new(emulator)),
            "trap" => Ok(Box::new(Trap { emulator, armed: Vec::new(), lists: Vec::new() })),
            "stillborn" => std::process::abort(),
            _ => Err(Error::new(ErrorKind::Unavailable, format!("no device `{name}`"))
                .with_hint("there is `emulator`")),
        }
    }
}

/// A device whose lists fail the process: kernels named `abort`, `exit`, `hang`, `panic` or `eat` (memory) do so.
struct Trap {
    emulator: Emulator,
    armed: Vec<(KernelId, String)>,
    lists: Vec<(ListId, String)>,
}

impl Device for Trap {
    tapml_device::forward!(emulator: info, create_buffer, destroy_buffer, write, read, destroy_kernel,
        destroy_list, wait, take_findings, memory);

    fn create_kernel(&mut self, desc: &KernelDesc) -> Result<KernelId> {
        let id = self.emulator.create_kernel(desc)?;
        self.armed.push((id, desc.name.clone()));
        Ok(id)
    }
    fn record(&mut self, commands: &[Do]) -> Result<ListId> {
        let list = self.emulator.record(commands)?;
        for command in commands {
            if let Do::Dispatch { kernel, .. } = command {
                let name = self.armed.iter().find(|(id, _)| id == kernel).map(|(_, n)| n.clone());
                self.lists.push((list, name.unwrap_or_default()));
            }
        }
        Ok(list)
    }
    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        for (_, name) in self.lists.iter().filter(|(id, _)| *id == list) {
            match name.as_str() {
                "abort" => {
                    eprintln!("assertion failed in trap.wgsl:3: the driver gives up");
                    std::process::abort();
                }
                "exit" => std::process::exit(7),
                "hang" => std::thread::sleep(Duration::from_secs(3600)),
                "slow" => std::thread::sleep(Duration::from_millis(700)),
                "panic" => panic!("trapped"),
                "eat" => {
                    let mut eaten = Vec::new();
                    loop {
                        eaten.push(std::hint::black_box(vec![1u8; 64 << 20]));
                    }
                }
                _ => {}
            }
        }
        self.emulator.replay(list, symbols)
    }
}

/// An agent on a thread of this process.
pub struct Running {
    pub address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it on a free port of this machine.
    pub fn start(config: Config, isolation: Isolation) -> Running {
        Running::listen("127.0.0.1:0", config, isolation)
    }

    /// An agent that other machines can reach, sessions in processes.
    pub fn reachable(config: Config) -> Running {
        Running::listen("0.0.0.0:0", config, Isolation::Process(Arc::new(session_command)))
    }

    /// An agent at this address, as soon as nobody else has it.
    pub fn listen(place: &str, config: Config, isolation: Isolation) -> Running {
        let until = Instant::now() + Duration::from_secs(10);
        let agent = loop {
            match Agent::bind(place, config.clone(), isolation.clone()) {
                Ok(agent) => break agent,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let (address, stopper) = (agent.address(), agent.stopper());
        let thread = Some(std::thread::spawn(move || agent.serve().unwrap()));
        Running { address, stopper, thread }
    }

    /// Sessions on threads.
    pub fn threads(config: Config) -> Running {
        Running::start(config, Isolation::Thread(Arc::new(Emulators)))
    }

    /// Sessions in processes: this test's own executable, which runs only the test `session_process`.
    pub fn processes(config: Config) -> Running {
        Running::start(config, Isolation::Process(Arc::new(session_command)))
    }

    /// The address of a device with options such as `check=all&trace=on`.
    pub fn address(&self, name: &str, options: &str) -> Address {
        let pairs = options.split('&').filter_map(|o| o.split_once('='));
        let options: Vec<_> = pairs.map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Address::parse(&format!("ws://{}/{name}", self.address), &options).unwrap()
    }

    /// Opens a device.
    pub fn open(&self, name: &str, options: &str) -> RemoteDevice {
        RemoteDevice::open(&self.address(name, options)).unwrap()
    }

    /// Stops the agent and waits for it.
    pub fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// Sessions in processes that a shell starts after these commands.
pub fn processes_after(script: &str) -> Isolation {
    let script = format!("{script}; exec \"$0\" \"$@\"");
    Isolation::Process(Arc::new(move || {
        let plain = session_command();
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(plain.get_program()).args(plain.get_args());
        command.env("TAPML_TEST_SESSION", "1");
        command
    }))
}

fn session_command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "session_process", "--nocapture"]).env("TAPML_TEST_SESSION", "1");
    command
}

/// The body of the test `session_process`: a session if this process was started for one.
pub fn session_process() {
    if std::env::var_os("TAPML_TEST_SESSION").is_none() {
        return;
    }
    let served = tapml_rpc::agent::run_session(&Emulators);
    std::process::exit(i32::from(served.is_err()));
}

/// Limits with a short deadline.
pub fn quick(deadline: Duration) -> Config {
    let settings = Settings { deadline, idle: Duration::from_secs(60), memory: 1 << 32 };
    Config { settings, ..Config::default() }
}

/// A kernel of this name that adds 1 to the words of one buffer.
pub fn adder(name: &str) -> KernelDesc {
    let text = "@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&words) { words[id.x] += 1u; }
}
";
    KernelDesc {
        name: name.into(),
        source: Source {
            language: Language::Wgsl,
            file: "trap.wgsl".into(),
            prelude: String::new(),
            text: text.into(),
        },
        entry: "main".into(),
        constants: Vec::new(),
        bindings: vec![BindingKind::ReadWrite],
        workgroup: [4, 1, 1],
        workgroup_memory: 0,
        needs_f16: false,
        needs_subgroups: false,
        dependent_launch: false,
    }
}

/// Makes a buffer of 4 words and a list that runs these kernels on it, one after the other.
pub fn record_kernels(device: &mut dyn Device, names: &[&str]) -> Result<(BufferId, ListId)> {
    let buffer = device.create_buffer("counted", 16)?;
    let one = || Extent::from_dim(1u64);
    let mut commands = Vec::new();
    for name in names {
        let kernel = device.create_kernel(&adder(name))?;
        commands.push(Do::Dispatch {
            label: format!("run {name}"),
            kernel,
            bindings: vec![Binding::whole(buffer)],
            groups: [one(), one(), one()],
        });
    }
    Ok((buffer, device.record(&commands)?))
}

/// Runs the list of these kernels once and reads the first word.
pub fn count(device: &mut dyn Device, names: &[&str]) -> Result<u32> {
    let (buffer, list) = record_kernels(device, names)?;
    device.replay(list, &Symbols::new())?;
    let mut word = [0; 4];
    device.read(buffer, 0, &mut word)?;
    Ok(u32::from_le_bytes(word))
}

/// The ids of the processes that a process has started.
pub fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(Path::new("/proc").join(of.to_string()).join("task")).unwrap() {
        let list = std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    found
}
