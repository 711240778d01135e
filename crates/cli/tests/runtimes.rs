//! Runtimes that die or lie in the middle of a job: what is said of the operator that they ran, and that nothing else is lost.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use common::python::{made_by, python};
use common::{json, stderr};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A model of four operators.
const MODEL: &str = r#"
import sys, numpy as np, onnx
from onnx import helper as h, numpy_helper as nh, TensorProto as T
folder, rng = sys.argv[1], np.random.default_rng(1)
nodes = [h.make_node("Add", ["x", "b"], ["s"], name="sum"), h.make_node("Mul", ["s", "x"], ["p"], name="product"),
    h.make_node("Relu", ["p"], ["r"], name="cut"), h.make_node("Neg", ["r"], ["y"], name="turned")]
value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [2, 3])
graph = h.make_graph(nodes, "line", [value("x")], [value("y")], [nh.from_array(rng.standard_normal((2, 3)).astype("f4"), "b")])
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), f"{folder}/line.onnx")
np.save(f"{folder}/x.npy", rng.standard_normal((2, 3)).astype("f4"))
"#;

/// A runtime that runs these operators with NumPy, and does to one of them what `LIE` says; to a sum and a product that run
/// as one model what `REGION_LIE` says.
const RUNTIME: &str = r#"
import os, signal, time, numpy as np
import tapml.agents._wire as wire
from tapml.agents import OnnxRuntime, serve

RUN = {"Add": np.add, "Mul": np.multiply, "Relu": lambda x: np.maximum(x, 0), "Neg": np.negative}
garbage = []
send = wire.Session.reply
def reply(self, seq, **message):
    if garbage and "node_result" in message:
        self.socket.send(b"\xff" * 100)
    else:
        send(self, seq, **message)
wire.Session.reply = reply

def lie(what, result):
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "never":
        time.sleep(1000)
    if what == "garbage":
        garbage.append(1)
    return {"shape": [result[:, :2]], "dtype": [result.astype("f8")], "nan": [result * np.nan], "few": [], "many": [result] * 2,
        "text": ["no array"]}.get(what, [result])

class Fake(OnnxRuntime):
    name = "ort"
    def build(self, model, call):
        constants = {name: value.array for name, value in call.values.items() if value.constant}
        def run(arrays):
            values = {**constants, **dict(zip(call.given(), arrays))}
            for node in call.nodes:
                values[node.outputs[0]] = RUN[node.name](*[values[name] for name in node.inputs])
            results = [values[name] for name, _ in call.results]
            what, op = os.environ.get("LIE", ":").split(":")
            if call.graph:
                together = {"Add", "Mul"} <= {node.name for node in call.nodes}
                what, op = os.environ.get("REGION_LIE", "") if together else "", call.nodes[0].name
            return lie(what, results[0]) if call.nodes[0].name == op else results
        return run

serve(Fake())
"#;

/// A folder with the model, and with what runs in the place of Python.
fn folder() -> Option<tempfile::TempDir> {
    let packages = ["numpy", "websockets", "google.protobuf", "onnx", "ml_dtypes"];
    let folder = made_by(MODEL, &packages, "agents that die or lie")?;
    let python = python().get_program().to_string_lossy().into_owned();
    std::fs::write(folder.path().join("runtime.py"), RUNTIME).unwrap();
    // `python -m tapml.agents ort OPTIONS` becomes `python runtime.py OPTIONS`.
    let script = folder.path().join("python");
    let runtime = folder.path().join("runtime.py");
    let text = format!(
        "#!/bin/sh\nif [ -e dead ]; then echo 'error: the device is gone' >&2; exit 2; fi\nshift 3\nunset PYTHONSAFEPATH\nexec {python} {} \"$@\"\n",
        runtime.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(folder)
}

fn tapml(folder: &Path, lie: &str) -> assert_cmd::Command {
    let mut command = common::tapml(folder);
    command.env("PYTHONPATH", tapml_testing::root().join("bindings/python/python"));
    command.env("TAPML_PYTHON", folder.join("python")).env("LIE", lie);
    command
}

fn carve(folder: &Path) {
    let mut carve = tapml(folder, ":");
    json(carve.args(["carve", "line.onnx", "--input", "x=x.npy", "--out", "suite"]), 0);
}

/// Operators with failed cases.
fn failed_operators(report: &Value) -> Vec<&str> {
    let rows = report["ops"].as_array().unwrap().iter();
    rows.filter(|row| row["failed"].as_u64() > Some(0)).map(|row| row["op"].as_str().unwrap()).collect()
}

#[test]
fn a_lie_about_one_operator_fails_it_and_no_other() {
    let Some(folder) = folder() else { return };
    carve(folder.path());
    let check = |lie: &str, target: &str, code: i32| {
        let mut check = tapml(folder.path(), lie);
        check.args(["check", "suite", "--target", target, "--junit", "cases.xml"]);
        let report = json(&mut check, code);
        (report, std::fs::read_to_string(folder.path().join("cases.xml")).unwrap())
    };
    let (report, _) = check(":", "ort", 0);
    assert_eq!((&report["cases"], &report["failed"]), (&4.into(), &0.into()), "{report}");
    for (what, told) in [
        ("die", "the process of `ort` ended while it ran"),
        ("garbage", "the process of `ort` was ended, for it ran"),
        ("shape", "expected f32[2,3], found f32[2,2]"),
        ("dtype", "expected f32[2,3], found f64[2,3]"),
        ("nan", "NaN"),
        ("few", "gave 0 results, 1 were asked for"),
        ("many", "gave 2 results, 1 were asked for"),
    ] {
        let (report, page) = check(&format!("{what}:Mul"), "ort", 1);
        assert_eq!(failed_operators(&report), ["onnx.Mul@17"], "{what}: {report}");
        assert_eq!(report["cases"], 4, "{what}: {report}");
        let text = page.replace("&apos;", "'").replace("&quot;", "\"");
        assert!(text.contains(told), "{what}: expected {told}, found {text}");
    }
    let (report, page) = check("never:Relu", "ort?deadline=3", 1);
    assert_eq!(failed_operators(&report), ["onnx.Relu@17"], "{report}");
    assert!(page.contains("time limit"), "{page}");
    // What is no tensor is not served, which says nothing against the runtime.
    let (report, _) = check("text:Mul", "ort", 1);
    assert_eq!((&report["cases"], &report["failed"]), (&3.into(), &0.into()), "{report}");
    assert!(report["skipped"][0]["reason"].as_str().unwrap().contains("gave a str"), "{report}");
}

#[test]
fn a_source_that_lies_or_dies_ends_a_carve_by_the_nodes_name() {
    let Some(folder) = folder() else { return };
    for (what, told) in
        [("die", "ended while it ran `product`"), ("few", "gave 0 results"), ("text", "gave a str")]
    {
        let mut carve = tapml(folder.path(), &format!("{what}:Mul"));
        carve.args(["carve", "line.onnx", "--input", "x=x.npy", "--source", "ort", "--out", "s"]);
        let text = stderr(&mut carve, 2);
        assert!(text.contains(told) && text.contains("product"), "{what}: {text}");
        assert!(!folder.path().join("s").exists(), "{what}");
    }
}

/// `tapml migrate` of the model to the runtime.
fn migrate(folder: &Path, lie: &str, region: &str, target: &str) -> assert_cmd::Command {
    let mut migrate = tapml(folder, lie);
    migrate
        .args(["migrate", "line.onnx", "--input", "x=x.npy", "--target", target])
        .env("REGION_LIE", region);
    migrate
}

#[test]
fn a_migration_rejects_what_kills_the_runtime_and_goes_on() {
    let Some(folder) = folder() else { return };
    for what in ["die", "garbage", "nan", "shape"] {
        let mut migrate = migrate(folder.path(), &format!("{what}:Mul"), "", "ort");
        let report = json(migrate.args(["--ledger", what]), 1);
        let states: Vec<(&str, &str)> = (report["ops"].as_array().unwrap().iter())
            .map(|op| (op["op"].as_str().unwrap(), op["state"].as_str().unwrap()))
            .collect();
        let state = |op| states.iter().find(|(name, _)| *name == op).map(|(_, state)| *state);
        assert_eq!(state("onnx.Mul@17"), Some("rejected"), "{what}: {report}");
        for op in ["onnx.Add@17", "onnx.Relu@17", "onnx.Neg@17"] {
            assert_eq!(state(op), Some("accepted"), "{what}: {report}");
        }
    }
}

#[test]
fn a_runtime_that_stays_dead_ends_the_migration_and_the_ledger_goes_on() {
    let Some(folder) = folder() else { return };
    // It dies at the last operator, and cannot be started again.
    std::fs::write(
        folder.path().join("runtime.py"),
        RUNTIME.replace("os.kill(", "open(\"dead\", \"w\"); os.kill("),
    )
    .unwrap();
    let mut first = migrate(folder.path(), "die:Neg", "", "ort");
    let text = stderr(first.args(["--ledger", "ledger"]), 2);
    assert!(text.contains("the device is gone"), "{text}");
    std::fs::remove_file(folder.path().join("dead")).unwrap();
    std::fs::write(folder.path().join("runtime.py"), RUNTIME).unwrap();
    let ledger = || -> Vec<Value> {
        let text = std::fs::read_to_string(folder.path().join("ledger/ledger.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["ops"].as_array().unwrap().clone()
    };
    let accepted: Vec<Value> = ledger().into_iter().filter(|op| op["state"] == "accepted").collect();
    assert_eq!(accepted.len(), 3, "{accepted:?}");
    let mut second = migrate(folder.path(), ":", "", "ort");
    let report = json(second.args(["--ledger", "ledger"]), 0);
    // What was accepted stands as it stood, with the time that it took.
    let after = ledger();
    assert!(accepted.iter().all(|op| after.contains(op)), "{accepted:?} {after:?}");
    assert_eq!(report["verdict"], "accepted", "{report}");
}

#[test]
fn nodes_as_one_model_that_kill_the_runtime_are_told_together() {
    let Some(folder) = folder() else { return };
    let target = "ort?deadline=3";
    for what in ["die", "garbage", "never", "few", "shape", "nan"] {
        let report = json(&mut migrate(folder.path(), ":", what, target), 1);
        assert_eq!(report["verdict"], "rejected", "{what}: {report}");
        let region = &report["regions"][0];
        assert_eq!(region["passed"], false, "{what}: {report}");
        assert_eq!(region["failing"], serde_json::json!(["sum", "product"]), "{what}: {report}");
        assert!(
            report["ops"].as_array().unwrap().iter().all(|op| op["state"] == "accepted"),
            "{what}: {report}"
        );
        std::fs::remove_dir_all(folder.path().join(".tapml")).unwrap();
        let mut diagnose = tapml(folder.path(), ":");
        diagnose.args(["diagnose", "line.onnx", "--input", "x=x.npy", "--target", target]);
        let report = json(diagnose.env("REGION_LIE", what), 1);
        let fault = &report["faults"][0];
        assert_eq!(report["faults"].as_array().unwrap().len(), 1, "{what}: {report}");
        assert_eq!(
            (&fault["kind"], &fault["nodes"]),
            (&"between".into(), &serde_json::json!(["sum", "product"])),
            "{what}"
        );
    }
}
