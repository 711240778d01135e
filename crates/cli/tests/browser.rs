//! A browser tab as a device: a real headless Chromium on its software adapter opens the page that a hub serves, and
//! commands use it. What goes wrong there ends the command with its reason, and the next one works. The same agent runs
//! under Node with Dawn.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, detector, draft, json, tapml};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tapml_testing::Browser;

/// `tapml device hub` on a free port.
struct Hub {
    process: Child,
    place: String,
    folder: tempfile::TempDir,
}

impl Hub {
    /// A hub, or nothing and a counted skip where there is no Chromium.
    fn start() -> Option<Hub> {
        Browser::is_here().then(Hub::open)
    }

    fn open() -> Hub {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
        command.current_dir(folder.path()).args(["device", "hub", "--listen", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let place = line.split_whitespace().nth(2).unwrap().trim_end_matches(';').to_string();
        Hub { process, place, folder }
    }

    /// A tab with the hub's page.
    fn browser(&self, name: &str) -> Browser {
        let page = self.place.replace("ws://", "http://");
        let browser = Browser::open(&format!("{page}/#name={name}")).unwrap();
        self.wait_for_browser(true);
        browser
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
        command.args(["generate", &draft(), "--prompt", "Once", "--max-tokens", "1", "--target", target]);
        json(&mut command, 0)["ids"].clone()
    }

    /// What a check says of a kernel that an agent must refuse.
    fn refusal(&self, suite: &Path, text: &str) -> String {
        let file = self.folder.path().join("mine.wgsl");
        std::fs::write(&file, text).unwrap();
        let mut command = self.tapml();
        command.arg("check").arg(suite).args(["--target", "hub/webgpu", "--op", "rms_norm"]);
        command.arg("--kernel").arg(format!("rms_norm={}", file.display()));
        String::from_utf8(command.assert().code(1).get_output().stdout.clone()).unwrap()
    }

    /// Starts a check of a suite in the browser, and waits until it is under way.
    fn check_in_background(&self, suite: &Path) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
        command.current_dir(self.folder.path()).env("TAPML_HUB", &self.place).stderr(Stdio::piped());
        command.stdout(Stdio::null());
        let child = command.arg("check").arg(suite).args(["--target", "hub/webgpu"]).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while self.devices()[0]["hub"]["busy"] != 1 {
            assert!(Instant::now() < until, "the check begins");
            std::thread::sleep(Duration::from_millis(100));
        }
        child
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a command ended, and what it said.
fn wait_for_end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_whole_model_moves_to_a_tab() {
    let Some(hub) = Hub::start() else { return };
    let _browser = hub.browser("tab");
    let listed = hub.devices().to_string();
    assert!(listed.contains("tab/webgpu") && listed.contains("swiftshader"), "{listed}");

    std::fs::write(hub.folder.path().join("prompts.txt"), "Once\n").unwrap();
    let mut migrate = hub.tapml();
    migrate.args(["migrate", &draft(), "--target", "hub/webgpu", "--steps", "0", "--ledger", "l"]);
    let report = json(migrate.args(["--prompts", "prompts.txt"]), 0);
    assert_eq!(report["verdict"], "accepted", "{report}");
    assert_eq!(report["coverage"]["calls"], report["coverage"]["checked"]);
}

#[test]
fn an_onnx_model_moves_to_a_tab_and_gives_the_same_there() {
    let Some(hub) = Hub::start() else { return };
    let _browser = hub.browser("tab");
    detector(hub.folder.path());
    let model = ["detector.onnx", "--input", "x=x.npy", "--target", "hub/webgpu"];
    let report = json(hub.tapml().arg("migrate").args(model).args(["--ledger", "l"]), 0);
    assert_eq!(report["verdict"], "accepted", "{report}");
    assert_eq!(report["coverage"]["calls"], report["coverage"]["checked"]);
    let fused: Vec<&serde_json::Value> = (report["ops"].as_array().unwrap().iter())
        .filter(|op| tapml::graph::fusion::find(op["op"].as_str().unwrap()).is_some())
        .collect();
    assert!(fused.iter().any(|op| op["op"] == "conv_epilogue" && op["nodes"] == 3), "{fused:?}");

    let report = json(hub.tapml().arg("run").args(model).args(["--out", "answers"]), 0);
    let outputs = report["runs"][0]["outputs"].as_array().unwrap();
    assert_eq!(outputs.len(), 2, "{report}");
    for output in outputs {
        assert!(output["max_difference"].as_f64().unwrap() < 1e-6, "{output}");
    }
    let ran: Vec<&str> =
        report["ops"].as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect();
    assert!(ran.contains(&"conv_epilogue") && !ran.contains(&"onnx.Conv@17"), "{ran:?}");
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
    let browser = hub.browser("tab");
    let suite = carve_small(hub.folder.path());
    let expected = hub.generate("cpu");

    // A kernel that the browser refuses: its name, its file, its line.
    let refused = hub.refusal(&suite, DIVERGENT);
    assert!(refused.contains("mine.wgsl:9:"), "{refused}");
    assert!(refused.contains("rms_norm/mine.wgsl") && refused.contains("uniform"), "{refused}");

    // The tab is closed, and opened again.
    let running = hub.check_in_background(&suite);
    drop(browser);
    hub.wait_for_browser(false);
    let _again = hub.browser("tab");
    let (code, said) = wait_for_end(running);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is lost") && said.contains("connected again"), "{said}");
    assert_eq!(hub.generate("hub/tab/webgpu"), expected);
}

/// The driver of Chromium's software adapter, which Dawn takes as any other.
const SWIFTSHADER: &str = "/usr/lib/chromium/vk_swiftshader_icd.json";

/// `web/dist/node-agent.mjs` under Node.
struct NodeAgent {
    process: Child,
    /// What it says; were this closed, it could not go on.
    said: BufReader<ChildStdout>,
}

impl NodeAgent {
    /// An agent with the packages of the folder `TAPML_DAWN`, known as `dawn`; `None` and a counted skip without them.
    fn start(hub: &Hub) -> Option<NodeAgent> {
        let packages = std::env::var_os("TAPML_DAWN");
        if !packages.is_some_and(|folder| Path::new(&folder).join("node_modules/webgpu").is_dir()) {
            tapml_testing::skip("dawn", "TAPML_DAWN names no folder with the npm packages webgpu and ws");
            return None;
        }
        if !Path::new(SWIFTSHADER).exists() {
            tapml_testing::skip("dawn", "Chromium's SwiftShader driver is not installed");
            return None;
        }
        let script = tapml_testing::root().join("web/dist/node-agent.mjs");
        let mut command = Command::new("node");
        command.arg(script).args(["--name", "dawn", &hub.place]).env("VK_ICD_FILENAMES", SWIFTSHADER);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let mut agent = NodeAgent { process, said };
        let mut line = String::new();
        agent.said.read_line(&mut line).unwrap();
        assert!(line.starts_with("hub/dawn/webgpu at ws://"), "{line}");
        Some(agent)
    }
}

impl Drop for NodeAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn dawn_under_node_is_a_device() {
    let hub = Hub::open();
    let Some(mut agent) = NodeAgent::start(&hub) else { return };
    let listed = hub.devices().to_string();
    assert!(listed.contains("dawn/webgpu") && listed.contains("webgpu 0."), "{listed}");
    assert_eq!(hub.generate("hub/dawn/webgpu"), hub.generate("cpu"));

    let refused = hub.refusal(&carve_small(hub.folder.path()), DIVERGENT);
    assert!(refused.contains("mine.wgsl:9:") && refused.contains("uniform"), "{refused}");

    // Told to end, it says goodbye.
    Command::new("kill").arg(agent.process.id().to_string()).status().unwrap();
    assert_eq!(agent.process.wait().unwrap().code(), Some(0));
    hub.wait_for_browser(false);
}
