//! `tapml inspect --lowered`: what a device runs of a model, kernel by kernel.
#![allow(clippy::unwrap_used)]

mod common;

use common::{detector, draft, json, stderr, tapml};
use serde_json::Value;
use std::path::Path;
use tapml::graph::{Graph, Op};

const GPU: &str = "emulator?kind=gpu";

/// What the command prints.
fn print_text(folder: &Path, arguments: &[&str]) -> String {
    let mut command = tapml(folder);
    command.args(["inspect", &draft(), "--lowered"]).args(arguments);
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

fn nodes(phase: &Value) -> &[Value] {
    phase["nodes"].as_array().unwrap()
}

fn kernels(phase: &Value) -> Vec<&str> {
    nodes(phase).iter().map(|node| node["kernel"].as_str().unwrap()).collect()
}

#[test]
fn the_text_of_one_phase_is_a_graph_with_a_kernel_behind_each_node() {
    let folder = tempfile::tempdir().unwrap();
    let text = print_text(folder.path(), &["--target", GPU, "--phase", "decode"]);
    let graph = Graph::parse(&text).unwrap();
    let fused = graph.nodes().iter().filter(|node| matches!(node.op, Op::Fused(_))).count();
    assert!(fused > 0, "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("  # ")).collect();
    assert_eq!(lines.len(), graph.nodes().len(), "one for each node");
    for (node, line) in graph.nodes().iter().zip(lines) {
        let (before, kernel) = line.rsplit_once("  # ").unwrap();
        assert!(before.contains(&format!(" = {}(", node.op.name())), "{line}");
        assert!(kernel.starts_with(&format!("{}/", node.op.name())), "{line}");
    }
    assert!(text.lines().any(|line| line.ends_with("  # norm_linear/gemv")), "{text}");
    let both = print_text(folder.path(), &["--target", GPU]);
    assert!(both.contains("# decode of") && both.contains("# prefill of"), "{both}");
    assert!(both.contains(text.split_once('\n').unwrap().1.trim_end()));
}

#[test]
fn the_report_holds_both_phases_with_bodies_and_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tapml(folder.path());
    let report = json(command.args(["inspect", &draft(), "--lowered", "--target", GPU]), 0);
    let phases = report["phases"].as_array().unwrap();
    assert_eq!((&phases[0]["phase"], &phases[1]["phase"]), (&"decode".into(), &"prefill".into()));
    assert_eq!(report["target"]["platform"], "emulator");
    for phase in phases {
        let graph = Graph::parse(phase["text"].as_str().unwrap()).unwrap();
        assert_eq!(nodes(phase).len(), graph.nodes().len());
        for (node, told) in graph.nodes().iter().zip(nodes(phase)) {
            assert_eq!(
                (told["name"].as_str(), told["op"].as_str()),
                (Some(&*node.name), Some(node.op.name()))
            );
            assert!(told["kernel"].as_str().unwrap().starts_with(&format!("{}/", node.op.name())));
            match &node.op {
                Op::Fused(fused) => {
                    assert_eq!(told["body"].as_array().unwrap().len(), fused.body().nodes().len())
                }
                op => assert_eq!(told["attributes"], op.attributes()),
            }
        }
    }
    let norm = nodes(&phases[0]).iter().find(|node| node["op"] == "norm_linear").unwrap();
    let body: Vec<&str> =
        norm["body"].as_array().unwrap().iter().map(|n| n["op"].as_str().unwrap()).collect();
    assert!(body.contains(&"rms_norm") && body.contains(&"linear"), "{body:?}");
    assert!(!kernels(&phases[1]).contains(&"norm_linear/gemv"), "it serves one row");
}

#[test]
fn what_decides_the_lowering_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let kernels_of = |arguments: &[&str]| -> Vec<String> {
        let mut command = tapml(folder.path());
        command.args(["inspect", &draft(), "--lowered", "--phase", "decode"]).args(arguments);
        let report = json(&mut command, 0);
        assert_eq!(report["phases"].as_array().unwrap().len(), 1);
        kernels(&report["phases"][0]).into_iter().map(str::to_string).collect()
    };
    let some = |kernels: &[String], name: &str| kernels.iter().any(|kernel| kernel == name);
    let quantized = kernels_of(&["--target", GPU, "--quantize", "q4"]);
    assert!(some(&quantized, "linear/gemv"), "{quantized:?}");
    let plain = kernels_of(&["--target", "emulator"]);
    assert!(plain.iter().all(|kernel| !kernel.starts_with("norm_linear/")), "{plain:?}");
    // A kernel of one's own for an inner operator keeps it from being fused.
    let file = folder.path().join("mine.wgsl");
    let mut kernel = tapml(folder.path());
    kernel.args(["kernel", "rms_norm", "--out"]).arg(&file).assert().success();
    let own = format!("rms_norm={}", file.display());
    let own = kernels_of(&["--target", GPU, "--kernel", &own]);
    assert!(some(&own, "rms_norm/mine.wgsl") && !some(&own, "norm_linear/gemv"), "{own:?}");
    let half = kernels_of(&["--target", GPU, "--activation", "f16"]);
    assert!(some(&half, "norm_linear/gemv"), "{half:?}");
}

#[test]
fn what_has_no_lowered_graph_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = |arguments: &[&str]| {
        let mut command = tapml(folder.path());
        stderr(command.args(["inspect", &draft()]).args(arguments), 2)
    };
    let cpu = error(&["--lowered", "--target", "cpu"]);
    assert!(cpu.contains("`cpu` has no lowered graph") && cpu.contains("emulator?kind=gpu"), "{cpu}");
    assert!(error(&["--lowered"]).contains("--target"), "a platform is asked for");
    assert!(error(&["--target", GPU]).contains("--lowered"));
    let none = error(&["--lowered", "--target", "emulator:7"]);
    assert!(none.contains("there is one emulator"), "{none}");
    assert!(error(&["--lowered", "--target", "warp"]).contains("warp"));
}

/// A field of a protobuf message that holds bytes of fewer than 128.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag << 3 | 2, bytes.len() as u8], bytes].concat()
}

#[test]
fn an_onnx_model_is_told_by_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.onnx");
    let node = [field(1, b"x"), field(2, b"y"), field(4, b"Relu")].concat();
    let graph = [field(1, &node), field(11, &field(1, b"x")), field(12, &field(1, b"y"))].concat();
    let model = [vec![8, 8], field(7, &graph), field(8, &[16, 17])].concat();
    std::fs::write(&path, &model).unwrap();
    let inspect = |more: &[&str]| {
        let mut command = tapml(folder.path());
        command.arg("inspect").arg(&path).args(more);
        command
    };
    let report = json(&mut inspect(&[]), 0);
    assert_eq!(
        (&report["format"], &report["operators"][0]["operator"]),
        (&"onnx".into(), &"onnx.Relu@17".into())
    );
    let text = inspect(&[]).assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(text).unwrap().contains("ai.onnx 17"));
    assert!(stderr(&mut inspect(&["--text"]), 2).contains("no inputs given"));
    std::fs::write(&path, &model[..model.len() - 1]).unwrap();
    assert!(stderr(&mut inspect(&[]), 2).contains("this is no ONNX model"));
}

#[test]
fn the_lowered_graph_of_an_onnx_model_has_its_fused_operators_and_their_kernels() {
    let folder = tempfile::tempdir().unwrap();
    detector(folder.path());
    let inspect = |more: &[&str]| {
        let mut command = tapml(folder.path());
        command.args(["inspect", "detector.onnx", "--input", "x=x.npy"]).args(more);
        command
    };
    let report = json(&mut inspect(&["--lowered", "--target", "emulator"]), 0);
    let phases = report["phases"].as_array().unwrap();
    let nodes = phases[0]["nodes"].as_array().unwrap();
    let fused: Vec<_> = nodes.iter().filter(|node| node["op"] == "conv_epilogue").collect();
    assert_eq!((phases.len(), fused.len()), (1, 3), "{report}");
    let inner = |node: &serde_json::Value| -> Vec<String> {
        let body = node["body"].as_array().unwrap().iter();
        body.map(|inner| inner["op"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(inner(fused[0]), ["onnx.Conv@17", "onnx.Sigmoid@17", "onnx.Mul@17"], "{report}");
    assert_eq!(inner(fused[2]), ["onnx.Conv@17", "onnx.Add@17"], "{report}");
    assert_eq!(fused[0]["kernel"], "conv_epilogue/portable", "8 channels fill half a tile: {report}");
    assert_eq!(fused[1]["kernel"], "conv_epilogue/portable", "{report}");
    let text = inspect(&["--text"]).assert().success().get_output().stdout.clone();
    let graph = tapml::graph::Graph::parse(&String::from_utf8(text).unwrap()).unwrap();
    assert_eq!(graph.nodes().len(), 14);
}
