//! Other people's runtimes by their words: `ort`, `openvino`, `reference`, …. Each runs in a Python process of its own,
//! `python -m tapml.agents WORD`, which lives as long as the platform. A runtime that takes its process with it fails the node
//! that it ran; it is started again for the next one.
//!
//! The process listens on a free local port and prints it as its first line. Then the wire protocol is
//! spoken as with any agent (`tapml_rpc`). Its standard input stays open: when TapML ends, in whatever way,
//! the pipe closes and the process ends too.

use crate::platform::PlatformSpec;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use tapml_exec::{Gave, NodeCall, NodeInput, NodeServer, PlatformInfo, Region, ServedOp};
use tapml_graph::op::Foreign;
use tapml_graph::{Error, ErrorKind, Result, Tensor};
use tapml_reduce::{ExportedProgram, Files, PROGRAM_FILES};
use tapml_rpc::{Address, Remote};

// The first import of a large package compiles and caches its modules.
/// How long a runtime may take to start: a large one is imported in a minute on a slow disk.
const START: Duration = Duration::from_secs(180);
// That of `timeout` of GNU coreutils.
/// The exit code of a process of which one call has taken too long.
const OUT_OF_TIME: i32 = 124;
// A runtime that prints without end must not fill memory.
/// Bytes of what a process says that are told.
const MAX_REPORTED: u64 = 64 << 10;

/// What to do where Python or its packages are missing.
pub(crate) const HINT: &str = "other runtimes need Python with the package: `pip install 'tapml[agents]'`; TAPML_PYTHON names another Python";

/// The interpreter that runs agents.
///
/// `python3` of the path unless `TAPML_PYTHON` names another.
pub(crate) fn python() -> std::ffi::OsString {
    std::env::var_os("TAPML_PYTHON").unwrap_or_else(|| "python3".into())
}

/// A call, told as JSON, with its arrays, as files that run on the runtime of this word without TapML; `None` if no runtime of that
/// word is known, or Python has no agents, or not what they need to write them.
pub fn write_program(word: &str, call: &str, arrays: &Files) -> Option<ExportedProgram> {
    let folder = tempfile::tempdir().ok()?;
    for (path, bytes) in arrays {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent()?).ok()?;
        std::fs::write(path, bytes).ok()?;
    }
    let mut command = Command::new(python());
    command
        .args(["-m", "tapml.agents", word, "--write-program"])
        .arg(folder.path())
        // A file of the current folder must not take the place of a module.
        .env("PYTHONSAFEPATH", "1");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    let call = call.to_string();
    // Who does not read all of it has ended, which its exit code tells.
    // In a thread: a call may be larger than a pipe holds, and the program may print before it has read
    // all.
    let writer = std::thread::spawn(move || drop(stdin.write_all(call.as_bytes())));
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?;
    let lines = String::from_utf8(output.stdout).ok()?;
    if !output.status.success() || lines.trim().is_empty() || lines.len() as u64 > MAX_REPORTED {
        return None;
    }
    let mut files = Files::new();
    for name in PROGRAM_FILES {
        if let Ok(bytes) = std::fs::read(folder.path().join(name)) {
            files.insert(name.into(), bytes);
        }
    }
    Some(ExportedProgram { files, lines })
}

/// A process that serves a runtime, which ends with this.
struct Process {
    child: Child,
    /// `ws://127.0.0.1:PORT/NAME`, empty until the process has said it.
    address: String,
}

impl Process {
    /// Waits for the address line, at most [`START`].
    ///
    /// # Errors
    /// `Unavailable` if Python or its packages are missing, or the process says nothing in time.
    fn start(spec: &PlatformSpec) -> Result<Process> {
        let python = python();
        let mut command = Command::new(&python);
        command.args(["-m", "tapml.agents", &spec.word, "--listen", "127.0.0.1:0", "--until-stdin-closes"]);
        // A file of the current folder must not take the place of a module.
        command.env("PYTHONSAFEPATH", "1");
        for (name, value) in &spec.options {
            command.arg(format!("--{}", name.replace('_', "-"))).arg(value);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = python.to_string_lossy();
        let mut child = command.spawn().map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("could not start `{shown}`: {e}")).with_hint(HINT)
        })?;
        let stdout = child.stdout.take().ok_or_else(|| Error::bug("a process without a pipe"))?;
        let stderr = child.stderr.take().ok_or_else(|| Error::bug("a process without a pipe"))?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let mut reader = BufReader::new(stdout);
            drop(reader.by_ref().take(MAX_REPORTED).read_line(&mut line));
            drop(sender.send(line));
            // Whatever else it prints must not fill the pipe.
            drop(std::io::copy(&mut reader, &mut std::io::sink()));
        });
        let mut process = Process { child, address: String::new() };
        // An empty line stands for silence: both mean that nothing is served.
        let line = receiver.recv_timeout(START).unwrap_or_default();
        match line.trim().strip_prefix("serving at ") {
            Some(address) => {
                process.address = address.into();
                std::thread::spawn(move || pass_on(stderr));
                Ok(process)
            }
            None => Err(process.exit_error(stderr).with_hint(HINT)),
        }
    }

    /// Why a process serves nothing.
    ///
    /// The last line of its error output is the message of a Python exception.
    fn exit_error(&mut self, stderr: ChildStderr) -> Error {
        drop(self.child.kill());
        let mut told = String::new();
        drop(BufReader::new(stderr).take(MAX_REPORTED).read_to_string(&mut told));
        let last = told.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        let last = last.strip_prefix("error: ").unwrap_or(last);
        Error::new(ErrorKind::Unavailable, format!("the runtime did not start: {last}"))
    }

    /// How the process ended; `None` if it has not.
    fn end(&mut self) -> Option<String> {
        // The connection breaks a moment before the process is gone.
        // One second at most.
        for _ in 0..50 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(match status.code() {
                    Some(OUT_OF_TIME) => "its time limit (`deadline=SECONDS`)".into(),
                    _ => status.to_string(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

/// What a runtime says goes where TapML's own words go.
fn pass_on(stderr: ChildStderr) {
    for line in BufReader::new(stderr).split(b'\n').map_while(std::io::Result::ok) {
        eprintln!("{}", String::from_utf8_lossy(&line));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Closes its standard input, at which it ends; it may hang in a runtime.
        drop(self.child.stdin.take());
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A runtime in a process, started again when it is lost.
pub struct RuntimeServer {
    spec: PlatformSpec,
    /// Kept alive as long as the server is used.
    process: Process,
    server: Box<dyn NodeServer>,
    /// Tensors that the runtime holds, and its handles for them.
    held: HashMap<u32, (Tensor, u32)>,
    /// Results that it holds, which a new process does not have.
    results: HashMap<u32, u32>,
    /// Counts up. Handles of callers stay valid when the process changes; the process's own do not.
    handles: u32,
    /// Without the port, which differs from run to run.
    info: PlatformInfo,
    ops: Vec<ServedOp>,
}

impl RuntimeServer {
    /// Starts a runtime.
    pub fn start(spec: &PlatformSpec) -> Result<RuntimeServer> {
        let (process, server) = connect(spec)?;
        let mut info = server.describe().clone();
        info.device = info.device.split(" at 127.0.0.1").next().unwrap_or_default().to_string();
        let ops = server.ops().to_vec();
        let spec = spec.clone();
        let (held, results) = (HashMap::new(), HashMap::new());
        Ok(RuntimeServer { spec, process, server, held, results, handles: 0, info, ops })
    }

    /// A handle that no other tensor has.
    fn handle(&mut self) -> u32 {
        self.handles += 1;
        self.handles
    }

    /// What became of a call. A process that has ended, or with which no word can be exchanged any more, is started again.
    ///
    /// A loss is an error of the node that ran, not of the platform: replay goes on with the next node.
    /// Held tensors are sent again; results are gone.
    fn survive<T>(&mut self, node: &str, result: Result<T>) -> Result<T> {
        let Err(error) = result else { return result };
        if error.kind() != ErrorKind::DeviceLost {
            // Everything else is the runtime's own answer.
            return Err(error);
        }
        let end = match self.process.end() {
            Some(end) => format!("the process of `{}` ended while it ran `{node}`: {end}", self.spec.word),
            None => format!("the process of `{}` was ended, for it ran `{node}` and {error}", self.spec.word),
        };
        let (process, server) = connect(&self.spec).map_err(|e| {
            // That says nothing against the node: whoever waits for its verdict shall wait on.
            let text = format!("{end}, and it could not be started again: {e}");
            Error::new(ErrorKind::DeviceLost, text)
        })?;
        (self.process, self.server) = (process, server);
        self.results.clear();
        // Callers keep their handles; only the process's side is new.
        for (tensor, handle) in self.held.values_mut() {
            *handle = self.server.put(tensor)?;
        }
        Err(Error::invalid(end.clone()).with_detail("ended", end))
    }

    /// The process's handle for one of ours.
    fn place(&self, handle: u32) -> Result<u32> {
        let held = self.held.get(&handle).map(|(_, there)| *there);
        held.or_else(|| self.results.get(&handle).copied()).ok_or_else(|| {
            Error::new(
                ErrorKind::DeviceLost,
                format!("`{}` has lost a value with its process", self.spec.word),
            )
        })
    }
}

/// Starts a process and opens a connection to it.
fn connect(spec: &PlatformSpec) -> Result<(Process, Box<dyn NodeServer>)> {
    let process = Process::start(spec)?;
    match Remote::open(&Address::parse(&process.address, &[])?)? {
        Remote::Operators(operators) => Ok((process, operators)),
        Remote::Device(_) => Err(Error::invalid("the agent offers a device instead of operators")),
    }
}

impl NodeServer for RuntimeServer {
    fn describe(&self) -> &PlatformInfo {
        &self.info
    }

    fn ops(&self) -> &[ServedOp] {
        &self.ops
    }

    fn put(&mut self, tensor: &Tensor) -> Result<u32> {
        let there = self.server.put(tensor)?;
        let handle = self.handle();
        self.held.insert(handle, (tensor.clone(), there));
        Ok(handle)
    }

    fn release(&mut self, handle: u32) -> Result<()> {
        let held = self.held.remove(&handle).map(|(_, there)| there);
        match held.or_else(|| self.results.remove(&handle)) {
            Some(there) => self.server.release(there),
            None => Ok(()),
        }
    }

    fn call(&mut self, call: &NodeCall<'_>) -> Result<Vec<Gave>> {
        let mut inputs = call.inputs.clone();
        for input in &mut inputs {
            if let NodeInput::Held(handle) = input {
                *handle = self.place(*handle)?;
            }
        }
        let gave = self.server.call(&NodeCall { inputs, ..call.clone() });
        let gave = self.survive(call.node, gave)?;
        let own = |gave| match gave {
            Gave::Held(there) => {
                let handle = self.handle();
                self.results.insert(handle, there);
                Gave::Held(handle)
            }
            here => here,
        };
        Ok(gave.into_iter().map(own).collect())
    }

    fn run_region(&mut self, region: &Region) -> Result<Vec<Tensor>> {
        let gave = self.server.run_region(region);
        self.survive(&region.name, gave)
    }

    fn discover(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        let gave = self.server.discover(node, op, inputs);
        self.survive(node, gave)
    }
}
