//! What the command's tests share: starting it, small prompts, reading its JSON.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used)]

pub mod held_out;
pub mod python;
pub mod site;
pub mod world;

use assert_cmd::Command;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The command, in a folder of the test's own.
pub fn tapml(folder: &Path) -> Command {
    let mut command = Command::cargo_bin("tapml").expect("the binary is built with its tests");
    command.current_dir(folder);
    command
}

/// The small bundled model.
pub fn draft() -> String {
    tapml_testing::model("llama_draft").display().to_string()
}

/// A file with two short prompts.
pub fn prompts(folder: &Path) -> PathBuf {
    let path = folder.join("prompts.txt");
    std::fs::write(&path, "Once upon a time\nThe old man looked\n").unwrap();
    path
}

/// Runs a command that must end with `code`; gives standard error.
pub fn stderr(command: &mut Command, code: i32) -> String {
    let output = command.assert().code(code).get_output().clone();
    String::from_utf8(output.stderr).unwrap()
}

/// Runs a command with `--json -` that must end with `code`; gives the report.
pub fn json(command: &mut Command, code: i32) -> Value {
    let output = command.args(["--json", "-"]).assert().code(code).get_output().clone();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Carves the small model; gives the suite's folder.
pub fn carve_small(folder: &Path) -> PathBuf {
    let suite = folder.join("draft.suite");
    let mut command = tapml(folder);
    command
        .args(["carve", &draft(), "--steps", "2", "--prompts"])
        .arg(prompts(folder))
        .arg("--out")
        .arg(&suite);
    command.assert().success();
    suite
}

/// The recorded calls among the cases of a check: those that no lowering adds.
pub fn count_recorded(report: &Value) -> u64 {
    let ops = report["ops"].as_array().unwrap().iter();
    let lowered = |op: &str| op == "argmax" || ::tapml::graph::fusion::find(op).is_some();
    let own = ops.filter(|op| !lowered(op["op"].as_str().unwrap()));
    own.map(|op| op["cases"].as_u64().unwrap()).sum()
}

/// A kernel file with the text of a built-in kernel.
pub fn kernel(folder: &Path, op: &str) -> PathBuf {
    let (dtype, info) = (::tapml::graph::DType::F32, ::tapml::kernels::any_device());
    let kernel = ::tapml::kernels::BuiltIn::find(&format!("{op}/portable"), dtype, &info).unwrap();
    let path = folder.join(format!("{op}.wgsl"));
    std::fs::write(&path, &kernel.desc().unwrap().source.text).unwrap();
    path
}

/// A kernel file with the text of a built-in kernel, this piece of it replaced, as `--kernel` takes it.
pub fn changed_kernel(folder: &Path, op: &str, [old, new]: [&str; 2]) -> String {
    let file = kernel(folder, op);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(old), "{op} has no `{old}`");
    std::fs::write(&file, text.replace(old, new)).unwrap();
    format!("{op}={}", file.display())
}

/// `tapml diagnose` of the small model with these arguments, in the background.
pub fn start_diagnose(folder: &Path, arguments: &[&str], suite: &Path) -> Child {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tapml"));
    command.args(["diagnose", &draft(), "--suite"]).arg(suite).args(arguments).current_dir(folder);
    command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Asks a command to stop, which must do so with code 2, say so, and take less than this.
pub fn stops(child: Child, within: Duration) {
    let start = Instant::now();
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("stopped on request"), "{text}");
    assert!(start.elapsed() < within, "{:?}", start.elapsed());
}

/// `tapml device serve` on a free port.
pub struct Agent {
    process: Child,
    /// Where it listens.
    pub place: String,
}

impl Agent {
    /// Starts it with these arguments.
    pub fn start(folder: &Path, arguments: &[&str]) -> Agent {
        Agent::start_in(folder, arguments, &std::env::temp_dir())
    }

    /// Starts it with a folder for temporary files; dropping it kills it.
    pub fn start_in(folder: &Path, arguments: &[&str], temporary: &Path) -> Agent {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tapml"));
        command.env("TMPDIR", temporary);
        command.current_dir(folder).args(["device", "serve", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let place = line.split_whitespace().nth(2).unwrap().trim_end_matches(';').to_string();
        Agent { process, place }
    }

    /// The word for one of its devices.
    pub fn device_word(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A fleet's run in the background, whose progress the test follows.
pub struct Run {
    process: Option<Child>,
    said: mpsc::Receiver<String>,
    heard: String,
}

impl Run {
    /// Starts `tapml check … --fleet` in a command that was made for it.
    pub fn start(mut command: std::process::Command) -> Run {
        command.args(["--json", "-"]).env("RUST_LOG", "warn,tapml_jobs::fleet=info");
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, said) = mpsc::channel();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Run { process: Some(process), said, heard: String::new() }
    }

    /// Waits until a part of the cases is done. Fails if the run is over by then.
    pub fn wait_for(&mut self, part: f64) {
        loop {
            let line = self.said.recv_timeout(Duration::from_secs(120));
            let line = line.unwrap_or_else(|_| panic!("no {part} of the cases: {}", self.heard));
            self.heard += &format!("{line}\n");
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(at) = words.windows(2).position(|w| w == ["cases", "are"]) else { continue };
            let (done, all): (f64, f64) = (words[at - 3].parse().unwrap(), words[at - 1].parse().unwrap());
            if done >= part * all {
                assert!(done < all, "the run is over before anything went wrong");
                return;
            }
        }
    }

    /// Kills it.
    pub fn kill(mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Its exit code and its report; what it said if there is none.
    pub fn end(mut self) -> (i32, Value) {
        let output = self.process.take().unwrap().wait_with_output().unwrap();
        self.heard.extend(self.said.iter().map(|line| line + "\n"));
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| self.heard.clone().into());
        (output.status.code().unwrap_or(-1), report)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A `tapml` that serves until it is dropped, and what its first line names.
pub struct Serving {
    /// Itself.
    pub process: Child,
    /// Its address.
    pub place: String,
}

impl Serving {
    /// Starts `tapml device` with these arguments.
    pub fn start(folder: &Path, arguments: &[&str]) -> Serving {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tapml"));
        command.current_dir(folder).arg("device").args(arguments);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let place = line.split_whitespace().nth(2).unwrap_or_default().trim_end_matches(';').to_string();
        Serving { process, place }
    }

    /// A hub.
    pub fn hub(folder: &Path, listen: &str) -> Serving {
        Serving::start(folder, &["hub", "--listen", listen])
    }

    /// An agent of a hub.
    pub fn agent(folder: &Path, hub: &str, name: &str, target: &str) -> Serving {
        Serving::start(folder, &["serve", "--hub", hub, "--name", name, "--target", target])
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The parts of a detector: convolutions with activations and a residual, a pool, a resize, a slice by integers, a product,
/// and shares.
const DETECTOR: &str = r#"graph detector
input x: f32[1,3,16,16]
weight w: f32[8,3,3,3]
weight b: f32[8]
weight depthwise: f32[8,1,3,3]
weight pointwise: f32[8,8,1,1]
weight scales: f32[4]
weight starts: i64[1]
weight ends: i64[1]
weight v: f32[6,7]
weight e: f32[7]
conv: f32[1,8,16,16] = onnx.Conv@17(x, w, b) {"pads":[1,1,1,1]}
share: f32[1,8,16,16] = onnx.Sigmoid@17(conv)
silu: f32[1,8,16,16] = onnx.Mul@17(conv, share)
pooled: f32[1,8,8,8] = onnx.MaxPool@17(silu) {"kernel_shape":[2,2],"strides":[2,2]}
small: f32[1,8,8,8] = onnx.Conv@17(pooled, depthwise) {"group":8,"pads":[1,1,1,1]}
relu: f32[1,8,8,8] = onnx.Relu@17(small)
resized: f32[1,8,16,16] = onnx.Resize@17(relu, _, scales) {"mode":"linear"}
mixed: f32[1,8,16,16] = onnx.Conv@17(resized, pointwise)
residual: f32[1,8,16,16] = onnx.Add@17(mixed, silu)
mean: f32[1,8,1,1] = onnx.GlobalAveragePool@17(residual)
flat: f32[1,8] = onnx.Flatten@17(mean)
six: f32[1,6] = onnx.Slice@17(flat, starts, ends, starts)
scores: f32[1,7] = onnx.Gemm@17(six, v, e)
shares: f32[1,7] = onnx.Softmax@17(scores)
output shares = shares
output residual = residual
"#;

/// Writes `detector.onnx` and its input `x.npy`.
pub fn detector(folder: &Path) {
    use ::tapml::graph::{DType, Graph, Op, Origin, Tensor, TensorType, ValueId};
    use ::tapml::import::onnx::{NewModel, NewNode};
    let graph = Graph::parse(DETECTOR).unwrap();
    let name = |id: &ValueId| graph.value(*id).name.clone();
    let typed = |id: ValueId| (name(&id), graph.value(id).ty.clone());
    let nodes = graph.nodes().iter().map(|node| {
        let Op::Foreign(op) = &node.op else { panic!("{}", node.name) };
        let inputs = op.place_inputs(node.inputs.iter().map(name)).into_iter().map(Option::unwrap_or_default);
        let (inputs, outputs) = (inputs.collect(), node.outputs.iter().map(name).collect());
        NewNode { name: &node.name, op, inputs, outputs }
    });
    let constant = |name: &str, ty: &TensorType| {
        let shape: Vec<usize> = ty.shape.iter().map(|size| size.as_const().unwrap() as usize).collect();
        let count: usize = shape.iter().product();
        let values: Vec<f64> = match name {
            "scales" => vec![1.0, 1.0, 2.0, 2.0],
            // From 1 to 7 along axis 1.
            "starts" => vec![1.0],
            "ends" => vec![7.0],
            _ => (0..count).map(|at| ((at * 7 + 3) % 11) as f64 / 11.0 - 0.45).collect(),
        };
        match ty.dtype {
            DType::I64 => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| (*v as i64).to_le_bytes()).collect();
                Tensor::new(ty.dtype, shape, ::tapml::graph::Bytes::new(bytes)).unwrap()
            }
            dtype => Tensor::from_f64(dtype, shape, &values).unwrap(),
        }
    };
    let weights = graph.values().iter().filter(|value| value.origin == Origin::Weight);
    let model = NewModel {
        nodes: nodes.collect(),
        inputs: graph.inputs().map(|(id, _)| typed(id)).collect(),
        constants: weights.map(|value| (value.name.clone(), constant(&value.name, &value.ty))).collect(),
        outputs: graph.outputs().iter().map(|output| typed(output.value)).collect(),
    };
    std::fs::write(folder.join("detector.onnx"), model.encode().unwrap()).unwrap();
    let (_, x) = graph.inputs().next().unwrap();
    ::tapml::import::npy::write(&folder.join("x.npy"), &constant("x", &x.ty)).unwrap();
}
