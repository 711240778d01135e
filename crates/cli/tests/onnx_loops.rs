//! Loops of ONNX models that are too long to unroll: one node, carved, checked and made small on runtimes and on TapML's own
//! evaluations.
#![allow(clippy::unwrap_used)]

mod common;

use common::json;
use common::python::{ONNX_RUNTIME, made_by, tapml};

/// A loop of 10,000 turns that reads a weight around it and has a branch within, and a model of it with another node.
const MODEL: &str = r#"
import sys, numpy as np, onnx
from onnx import helper as h, numpy_helper as nh, TensorProto as T
info = h.make_tensor_value_info
branch = lambda op: h.make_graph([h.make_node(op, ["next"], [op + "_out"])], op, [], [info(op + "_out", T.FLOAT, None)])
body = h.make_graph([
    h.make_node("Mul", ["state", "decay"], ["less"]), h.make_node("Add", ["less", "step"], ["next"]),
    h.make_node("If", ["go"], ["moved"], then_branch=branch("Identity"), else_branch=branch("Neg")),
    h.make_node("ReduceSum", ["moved"], ["sum"], keepdims=0)], "body",
    [info("i", T.INT64, []), info("go", T.BOOL, []), info("state", T.FLOAT, [4])],
    [info("go", T.BOOL, []), info("moved", T.FLOAT, [4]), info("sum", T.FLOAT, [])])
nodes = [h.make_node("Relu", ["x"], ["start"], name="start"), h.make_node("Loop", ["turns", "", "start"], ["y", "sums"], name="many", body=body)]
weights = [nh.from_array(np.array(10000), "turns"), nh.from_array(np.full(4, 0.999, "f4"), "decay"), nh.from_array(np.linspace(0.1, 0.4, 4).astype("f4"), "step")]
graph = h.make_graph(nodes, "long", [info("x", T.FLOAT, [4])], [info("y", T.FLOAT, [4]), info("sums", T.FLOAT, [10000])], weights)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, f"{sys.argv[1]}/long.onnx")
np.save(f"{sys.argv[1]}/x.npy", np.array([0.5, -1, 2, 3], "f4"))
"#;

#[test]
fn a_loop_of_ten_thousand_turns_is_one_node_that_is_checked() {
    let Some(folder) = made_by(MODEL, ONNX_RUNTIME, "long loops") else { return };
    for source in ["ort", "cpu"] {
        let mut carve = tapml(folder.path());
        carve.args(["carve", "long.onnx", "--input", "x=x.npy", "--source", source, "--out", source]);
        let report = json(&mut carve, 0);
        assert_eq!(report["nodes"], 2, "{report}");
        let told = report["unrolled"][0].as_str().unwrap();
        assert!(told.contains("`many`") && told.contains("it stays one node: its 10000 turns"), "{told}");
        assert!(report["seconds"]["total"].as_f64().unwrap() < 30.0, "{report}");
    }
    let check = |suite: &str, more: &[&str], code: i32| {
        let mut check = tapml(folder.path());
        json(check.args(["check", suite]).args(more), code)
    };
    for more in
        [&["--target", "ort"][..], &["--target", "cpu"], &["--target", "ort", "--oracle", "reference"]]
    {
        let report = check("ort", more, 0);
        assert_eq!((&report["cases"], &report["failed"]), (&2.into(), &0.into()), "{more:?}: {report}");
        assert_eq!(report["skipped"].as_array().unwrap().len(), 0, "{more:?}: {report}");
    }
    // What is wrong within is found by the operator's name.
    let mut migrate = tapml(folder.path());
    migrate.args(["migrate", "long.onnx", "--input", "x=x.npy", "--target", "ort"]);
    assert_eq!(json(&mut migrate, 0)["verdict"], "accepted");
    // No kernel runs a loop: that is told, and the node stays on the source.
    let report = check("ort", &["--target", "emulator"], 1);
    assert_eq!(report["skipped"].as_array().unwrap().len(), 1, "{report}");
    let mut run = tapml(folder.path());
    run.args(["run", "long.onnx", "--input", "x=x.npy", "--target", "emulator", "--out", "answers"]);
    let report = json(&mut run, 0);
    assert_eq!(report["ops"][1]["platform"], "cpu", "{report}");
}
