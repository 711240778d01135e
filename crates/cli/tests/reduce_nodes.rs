//! Nodes that fail only together become a model of the fewest of them and a script.
#![allow(clippy::unwrap_used)]

mod common;

use common::python::{ONNX_RUNTIME, made_by, python, tapml};
use common::{json, stderr};

/// A residual block with a gate, and its input.
const MODEL: &str = r#"
import sys, numpy as np, onnx
from onnx import helper as h, numpy_helper as nh, TensorProto as T
folder, rng = sys.argv[1], np.random.default_rng(1)
weights = [nh.from_array(rng.standard_normal(s).astype("f4"), n) for n, s in (("w", (3, 3, 3, 3)), ("b", 3))]
nodes = [
    h.make_node("Conv", ["x", "w", "b"], ["h"], name="first", pads=[1, 1, 1, 1]),
    h.make_node("LeakyRelu", ["h"], ["a"], name="cut"),
    h.make_node("Add", ["a", "x"], ["r"], name="sum"),
    h.make_node("Sigmoid", ["r"], ["s"], name="gate"),
    h.make_node("Mul", ["r", "s"], ["y"], name="gated"),
]
ends = [h.make_tensor_value_info(name, T.FLOAT, [1, 3, 6, 6]) for name in "xy"]
graph = h.make_graph(nodes, "block", ends[:1], ends[1:], weights)
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), f"{folder}/block.onnx")
np.save(f"{folder}/x.npy", rng.standard_normal((1, 3, 6, 6)).astype("f4"))
"#;

#[test]
fn nodes_that_fail_together_become_a_model_and_a_script() {
    let Some(folder) = made_by(MODEL, ONNX_RUNTIME, "ONNX Runtime") else { return };
    let carve = ["carve", "block.onnx", "--input", "x=x.npy", "--source", "ort", "--out", "suite"];
    json(tapml(folder.path()).args(carve), 0);
    let whole = ["first", "cut", "sum", "gate", "gated"];
    let reduce = |fault: &str, out: &str| {
        let mut reduce = tapml(folder.path());
        reduce.args(["reduce", "suite", "--target", &format!("ort{fault}"), "--out", out]);
        reduce.arg("--nodes").args(whole);
        reduce
    };
    for (fault, kinds, elements) in [
        ("fused-silu-hard", &["onnx.Sigmoid@17", "onnx.Mul@17"][..], 1),
        // The fault needs an operator in front of the sum, and that one needs none.
        ("fused-residual-twice", &["onnx.Conv@17", "onnx.Add@17"], 4),
    ] {
        let report = json(&mut reduce(&format!("?fault={fault}"), fault), 0);
        assert_eq!(report["fails"], true, "{fault}: {report}");
        let left: Vec<&str> = (report["after"]["attributes"].as_array().unwrap().iter())
            .map(|one| one["op"].as_str().unwrap())
            .collect();
        assert_eq!(left, kinds, "{fault}: {report}");
        assert!(report["after"]["elements"].as_u64().unwrap() <= elements, "{fault}: {report}");
        let bug = folder.path().join(fault);
        let script = std::fs::read_to_string(bug.join("repro.py")).unwrap();
        assert!(script.contains("ORT_ENABLE_ALL") && bug.join("model.onnx").is_file(), "{script}");
        // The fault is in the agent, and the script runs the runtime as it is.
        let ran = python().current_dir(&bug).arg("repro.py").output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{fault}: {}", String::from_utf8_lossy(&ran.stderr));
        let wrong = script.replace(".run(None, feed)[0]", ".run(None, feed)[0] + 1");
        assert_ne!(script, wrong);
        std::fs::write(bug.join("repro.py"), wrong).unwrap();
        assert_eq!(python().current_dir(&bug).arg("repro.py").output().unwrap().status.code(), Some(1));
    }
    let text = stderr(&mut reduce("", "none"), 1);
    assert!(text.contains("do not fail as one model"), "{text}");
    assert!(!folder.path().join("none").exists());
    let mut unknown = tapml(folder.path());
    unknown.args(["reduce", "suite", "--nodes", "nobody", "--target", "ort", "--out", "none"]);
    assert!(stderr(&mut unknown, 2).contains("the suite has no node `nobody`"));
}
