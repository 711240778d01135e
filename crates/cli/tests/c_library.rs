//! A program in C that loads the C library: `tapml device check` uses its device.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use ::tapml::platform::{PlatformSpec, open_device};
use common::{Serving, json, tapml};
use serde_json::{Value, json as object};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tapml_testing::{root, skip};

// The library is built with this test, for it is named here.
use tapml_agent as _;

/// `bindings/c/examples/agent.c`, compiled into this folder; `None` without a C compiler.
fn compile(folder: &Path) -> Option<PathBuf> {
    if !Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("cc", "there is no C compiler `cc`");
        return None;
    }
    let built = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let (bindings, program) = (root().join("bindings/c"), folder.join("agent"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"]).arg(bindings.join("include"));
    cc.arg(bindings.join("examples/agent.c")).arg("-o").arg(&program);
    cc.arg("-L").arg(&built).arg("-ltapml_agent").arg(format!("-Wl,-rpath,{}", built.display()));
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// The program with an agent in it.
struct Program {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Program {
    fn start(program: &Path, config: &Value) -> Program {
        let mut command = Command::new(program);
        command.arg(config.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (to, from) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        Program { process, to, from }
    }

    fn read_status(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: `{line}`"))
    }

    /// Asks until so many sessions are open.
    fn wait_for_sessions(&mut self, count: u64) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            self.to.as_mut().unwrap().write_all(b"\n").unwrap();
            let status = self.read_status();
            if status["sessions"] == count {
                return;
            }
            assert!(Instant::now() < until, "{count} sessions are expected: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The names of its threads that a broken pipe would end the program in.
    #[cfg(target_os = "linux")]
    fn ended_by_broken_pipes(&self) -> Vec<String> {
        let look = |task: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let field =
                |name: &str| text.lines().find_map(|l| Some(l.strip_prefix(name)?.trim().to_string()));
            let blocked = u64::from_str_radix(&field("SigBlk:")?, 16).ok()?;
            // SIGPIPE is 13, and the first signal's bit is the lowest.
            (blocked & (1 << 12) == 0).then(|| field("Name:"))?
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        tasks.filter_map(look).collect()
    }

    /// Ends its input, at which it stops the agent and ends.
    fn stop(mut self) {
        drop(self.to.take());
        let mut rest = String::new();
        self.from.read_to_string(&mut rest).unwrap();
        let output = self.process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert_eq!(rest, "stopped\n");
    }
}

#[test]
fn a_program_in_c_offers_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else { return };
    let config = object!({ "listen": "127.0.0.1:0", "targets": ["emulator"], "temporary": folder.path() });
    let mut agent = Program::start(&program, &config);
    let status = agent.read_status();
    assert_eq!((&status["running"], &status["sessions"]), (&true.into(), &0.into()), "{status}");
    assert_eq!(status["devices"][0]["name"], "emulator", "{status}");
    let device = format!("{}/emulator", status["address"].as_str().unwrap());
    let checked = json(tapml(folder.path()).args(["device", "check", &device]), 0);
    assert!(checked["failed"] == 0 && checked["passed"].as_u64() > Some(20), "{checked}");

    let opened = open_device(&PlatformSpec::parse(&device).unwrap()).unwrap();
    agent.wait_for_sessions(1);
    #[cfg(target_os = "linux")]
    assert_eq!(agent.ended_by_broken_pipes(), ["agent"], "the app's own thread is left as it is");
    drop(opened);
    agent.wait_for_sessions(0);
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(entries(), 2, "the program and its agent's temporary folder");
    agent.stop();
    assert_eq!(entries(), 1);
    assert!(open_device(&PlatformSpec::parse(&format!("{device}?reconnect=0")).unwrap()).is_err());
}

#[test]
fn a_program_in_c_dials_a_hub() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else { return };
    let hub = Serving::hub(folder.path(), "127.0.0.1:0");
    let config = object!({ "hubs": [hub.place], "name": "phone", "targets": ["emulator?profile=mobile"] });
    let mut agent = Program::start(&program, &config);
    assert_eq!(agent.read_status()["address"], Value::Null);
    let mut check = tapml(folder.path());
    check.env("TAPML_HUB", &hub.place).args(["device", "check", "hub/phone/emulator?wait=30"]);
    let checked = json(&mut check, 0);
    assert!(checked["target"]["name"].as_str().unwrap().contains("mobile"), "{checked}");
    agent.stop();
    let output = Command::new(&program).arg("{\"hub\": 1}").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("unknown field `hub`"), "{said}");
}
