//! A browser tab as a device: a real headless Chromium on its software adapter opens the page that a hub serves, and
//! commands use it. What goes wrong there ends the command with its reason, and the next one works.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carved, draft, json, stderr, tapml};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHROMIUM: &str = "/usr/bin/chromium";

/// `tapml device hub` on a free port.
struct Hub {
    process: Child,
    place: String,
    folder: tempfile::TempDir,
}

impl Hub {
    /// A hub, or nothing and a counted skip where there is no Chromium.
    fn start() -> Option<Hub> {
        if !Path::new(CHROMIUM).exists() {
            tapml_testing::skip("chromium", "/usr/bin/chromium is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
        command.current_dir(folder.path()).args(["device", "hub", "--listen", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let place = line.split_whitespace().nth(2).unwrap().trim_end_matches(';').to_string();
        Some(Hub { process, place, folder })
    }

    /// A command that knows this hub.
    fn tapml(&self) -> assert_cmd::Command {
        let mut command = tapml(self.folder.path());
        command.env("TAPML_HUB", &self.place);
        command
    }

    fn devices(&self) -> serde_json::Value {
        json(self.tapml().args(["device", "list", "hub"]), 0)["devices"].clone()
    }

    /// Waits until the hub knows a browser, or knows none.
    fn wait_for_browser(&self, there: bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while self.devices().to_string().contains("webgpu") != there {
            assert!(Instant::now() < until, "a browser is there: {}", !there);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ids of the tokens that the small model gives.
    fn generate(&self, target: &str) -> serde_json::Value {
        let mut command = self.tapml();
        command.args(["generate", &draft(), "--prompt", "Once", "--max-tokens", "2", "--target", target]);
        json(&mut command, 0)["ids"].clone()
    }

    /// Starts a check of a suite in the browser, and waits until it is under way.
    fn check_in_background(&self, suite: &Path) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
        command.current_dir(self.folder.path()).env("TAPML_HUB", &self.place).stderr(Stdio::piped());
        let child = command.arg("check").arg(suite).args(["--target", "hub/webgpu"]).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        child
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Chromium with one tab, which is the page of a hub.
struct Browser {
    process: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn open(hub: &Hub, name: &str) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let process = Command::new(CHROMIUM)
            .args(["--headless=new", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-extensions"])
            .args(["--disable-dev-shm-usage", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("{}/#name={name}", hub.place.replace("ws://", "http://")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let browser = Browser { process, _profile: profile };
        hub.wait_for_browser(true);
        browser
    }

    /// The process that talks to the GPU: a child of the browser, or of a child of it.
    fn gpu_process(&self) -> u32 {
        let mut family = vec![self.process.id()];
        let mut at = 0;
        while let Some(parent) = family.get(at).copied() {
            family.extend(children(parent));
            at += 1;
        }
        let is_gpu = |id: &u32| {
            let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.contains("--type=gpu-process")
        };
        family.into_iter().find(is_gpu).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

/// The children of a process; those of all its threads.
fn children(parent: u32) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name in parentheses may hold anything; state and parent follow it.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        after.split_whitespace().nth(1).and_then(|p| p.parse().ok()) == Some(parent)
    };
    ids.filter(is_child).collect()
}

/// How a command ended, and what it said.
fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_tab_is_a_device_that_conforms_and_takes_a_whole_model() {
    let Some(hub) = Hub::start() else { return };
    let _browser = Browser::open(&hub, "tab");
    let listed = hub.devices().to_string();
    assert!(listed.contains("tab/webgpu") && listed.contains("swiftshader"), "{listed}");

    let checked = json(hub.tapml().args(["device", "check", "hub/webgpu"]), 0);
    assert_eq!(checked["failed"], 0, "{checked}");
    assert!(checked["passed"].as_u64().unwrap() > 40, "{checked}");

    std::fs::write(hub.folder.path().join("prompts.txt"), "Once\n").unwrap();
    let mut migrate = hub.tapml();
    migrate.args(["migrate", &draft(), "--target", "hub/webgpu", "--steps", "1", "--ledger", "l"]);
    let report = json(migrate.args(["--prompts", "prompts.txt"]), 0);
    assert_eq!(report["verdict"], "accepted", "{report}");
    assert_eq!(report["coverage"]["calls"], report["coverage"]["checked"]);
    assert_eq!(hub.generate("hub/tab"), hub.generate("cpu"));
}

/// A barrier that not all invocations reach: naga takes it, browsers refuse it.
const DIVERGENT: &str = "
@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> weight: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane < 3u {
        workgroupBarrier();
    }
    y[lane] = x[lane] + to_act(f32(weight[0])) + to_act(f32(row_count(symbols)));
}
";

#[test]
fn what_goes_wrong_in_a_tab_is_told_and_the_next_command_works() {
    let Some(hub) = Hub::start() else { return };
    let browser = Browser::open(&hub, "tab");
    let suite = carved(hub.folder.path());
    let expected = hub.generate("cpu");
    let with_kernel = |target: &str, text: &str| {
        let file = hub.folder.path().join("mine.wgsl");
        std::fs::write(&file, text).unwrap();
        let mut command = hub.tapml();
        command.arg("check").arg(&suite).args(["--target", target, "--op", "rms_norm"]);
        command.arg("--kernel").arg(format!("rms_norm={}", file.display()));
        stderr(&mut command, 2)
    };

    // A kernel that the browser refuses: its name, its file, its line.
    let refused = with_kernel("hub/webgpu", DIVERGENT);
    assert!(refused.contains("mine.wgsl:8:"), "{refused}");
    assert!(refused.contains("rms_norm/mine.wgsl") && refused.contains("uniform"), "{refused}");

    // A kernel that never ends.
    let endless = DIVERGENT
        .replace("if lane < 3u {\n        workgroupBarrier();\n    }", "while f32(y[0]) != 12345.0 {}");
    let ended_by = with_kernel("hub/webgpu?deadline=3", &endless);
    assert!(ended_by.contains("did not finish within 3"), "{ended_by}");
    assert!(ended_by.contains("rms_norm/mine.wgsl"), "{ended_by}");
    assert_eq!(hub.generate("hub/webgpu"), expected);

    // The GPU's process crashes: the browser takes the device away.
    let running = hub.check_in_background(&suite);
    let gpu = browser.gpu_process();
    assert!(Command::new("kill").args(["-9", &gpu.to_string()]).status().unwrap().success());
    let (code, said) = ended(running);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the browser's device was lost"), "{said}");
    assert_eq!(hub.generate("hub/webgpu"), expected);

    // The tab is closed.
    let running = hub.check_in_background(&suite);
    drop(browser);
    let (code, said) = ended(running);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is lost"), "{said}");
    hub.wait_for_browser(false);
    let _again = Browser::open(&hub, "tab");
    assert_eq!(hub.generate("hub/tab/webgpu"), expected);
}
