//! ONNX models: carved on ONNX Runtime and on TapML's own evaluations, checked on both, and on runtimes that are wrong, that
//! die, or that are not there.
#![allow(clippy::unwrap_used)]

mod common;

use common::python::{ONNX_RUNTIME, made_by, python, tapml};
use common::{json, stderr};
use std::path::Path;

/// Writes a model of a few layers with a branch, and its input.
const MODEL: &str = r#"
import sys, numpy as np, onnx
from onnx import helper as h, numpy_helper as nh, TensorProto as T
folder, rng = sys.argv[1], np.random.default_rng(1)
weights = {"w": rng.standard_normal((8, 3, 3, 3)), "b": rng.standard_normal(8), "v": rng.standard_normal((5, 8 * 16)), "c": rng.standard_normal(5)}
weights = [nh.from_array(a.astype("float32"), n) for n, a in weights.items()] + [nh.from_array(np.array(True), "flag")]
branch = lambda op: h.make_graph([h.make_node(op, ["pooled"], [f"{op}_out"])], op, [], [h.make_tensor_value_info(f"{op}_out", T.FLOAT, None)])
nodes = [
    h.make_node("Conv", ["x", "w", "b"], ["h"], name="conv", pads=[1, 1, 0, 0], strides=[1, 1]),
    h.make_node("LeakyRelu", ["h"], ["a"], name="act", alpha=0.2),
    h.make_node("MaxPool", ["a"], ["pooled"], name="pool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    h.make_node("If", ["flag"], ["chosen"], then_branch=branch("Neg"), else_branch=branch("Relu")),
    h.make_node("Flatten", ["chosen"], ["flat"], name="flat"),
    h.make_node("Gemm", ["flat", "v", "c"], ["scores"], name="gemm", transB=1, alpha=0.5),
    h.make_node("Softmax", ["scores"], ["y"], name="softmax", axis=-1),
    h.make_node("ArgMax", ["y"], ["best"], name="best", axis=1, keepdims=0),
]
x = h.make_tensor_value_info("x", T.FLOAT, [1, 3, 8, 8])
out = [h.make_tensor_value_info("y", T.FLOAT, [1, 5]), h.make_tensor_value_info("best", T.INT64, [1])]
model = h.make_model(h.make_graph(nodes, "small", [x], out, weights), opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, f"{folder}/small.onnx")
nodes = [
    h.make_node("Conv", ["x", "w", "b"], ["h"], name="first"),
    h.make_node("Relu", ["h"], ["a"], name="cut"),
    h.make_node("Sigmoid", ["a"], ["s"], name="gate"),
    h.make_node("Mul", ["a", "s"], ["y"], name="gated"),
]
out = [h.make_tensor_value_info("y", T.FLOAT, [1, 8, 6, 6])]
chain = h.make_model(h.make_graph(nodes, "chain", [x], out, weights[:2]), opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnx.save(chain, f"{folder}/chain.onnx")
line = [h.make_tensor_value_info(name, T.FLOAT, [11]) for name in "ty"]
tail = h.make_graph([h.make_node("Sigmoid", ["t"], ["y"], name="tail")], "tail", line[:1], line[1:])
onnx.save(h.make_model(tail, opset_imports=[h.make_opsetid("", 17)], ir_version=8), f"{folder}/tail.onnx")
np.save(f"{folder}/x.npy", rng.standard_normal((1, 3, 8, 8)).astype("float32"))
np.save(f"{folder}/wide.npy", rng.standard_normal((1, 3, 8, 9)).astype("float32"))
np.save(f"{folder}/t.npy", rng.standard_normal(11).astype("float32"))
"#;

/// A folder with the model; `None`, and a skip, if Python lacks its packages.
fn folder() -> Option<tempfile::TempDir> {
    made_by(MODEL, ONNX_RUNTIME, "ONNX Runtime")
}

fn carve_onnx(folder: &Path, source: &str, out: &str) -> serde_json::Value {
    let mut carve = tapml(folder);
    carve.args(["carve", "small.onnx", "--input", "x=x.npy", "--source", source, "--out", out]);
    json(&mut carve, 0)
}

#[test]
fn prompts_are_refused_by_a_model_that_reads_arrays() {
    let Some(folder) = folder() else { return };
    std::fs::write(folder.path().join("prompts.txt"), "once\n").unwrap();
    for command in
        [&["carve", "small.onnx", "--out", "s.suite"][..], &["migrate", "small.onnx", "--target", "emulator"]]
    {
        let mut command_line = tapml(folder.path());
        command_line.args(command).args(["--input", "x=x.npy", "--prompts", "prompts.txt"]);
        assert!(stderr(&mut command_line, 2).contains("`--input NAME=FILE`"), "{command:?}");
    }
}

#[test]
fn a_model_is_carved_on_either_source_and_passes_on_either_target() {
    let Some(folder) = folder() else { return };
    for source in ["ort", "cpu"] {
        let report = carve_onnx(folder.path(), source, &format!("{source}.suite"));
        assert_eq!((&report["nodes"], &report["totals"]["calls"]), (&8.into(), &8.into()), "{report}");
        let unrolled = report["unrolled"][0].as_str().unwrap();
        assert!(unrolled.contains("`then_branch`"), "{unrolled}");
        for target in ["ort", "cpu"] {
            let mut check = tapml(folder.path());
            check.args(["check", &format!("{source}.suite"), "--target", target]);
            let report = json(&mut check, 0);
            assert_eq!((&report["cases"], &report["failed"]), (&8.into(), &0.into()), "{report}");
            assert_eq!(report["skipped"].as_array().unwrap().len(), 0, "{report}");
            let ops: Vec<&str> =
                report["ops"].as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect();
            assert!(ops.contains(&"onnx.Conv@17") && ops.contains(&"onnx.Neg@17"), "{ops:?}");
        }
    }
}

#[test]
fn faults_are_found_by_the_operators_name_and_no_other_fails() {
    let Some(folder) = folder() else { return };
    carve_onnx(folder.path(), "ort", "suite");
    for (fault, op) in [
        ("conv-pads-swapped", "onnx.Conv@17"),
        ("conv-in-bf16", "onnx.Conv@17"),
        ("leakyrelu-alpha-ignored", "onnx.LeakyRelu@17"),
        ("maxpool-ceil-mode-ignored", "onnx.MaxPool@17"),
        ("gemm-alpha-ignored", "onnx.Gemm@17"),
        ("argmax-axis-ignored", "onnx.ArgMax@17"),
    ] {
        let mut check = tapml(folder.path());
        check.args(["check", "suite", "--target", &format!("ort?fault={fault}")]);
        let report = json(&mut check, 1);
        let failed: Vec<&str> = (report["ops"].as_array().unwrap().iter())
            .filter(|row| row["failed"].as_u64() > Some(0))
            .map(|row| row["op"].as_str().unwrap())
            .collect();
        assert_eq!(failed, [op], "{fault}: {report}");
    }
}

#[test]
fn a_diagnosis_names_the_operator_the_cause_and_when_it_shows() {
    let Some(folder) = folder() else { return };
    let diagnose = |source: &str, target: &str, code: i32| {
        let mut command = tapml(folder.path());
        command.args([
            "diagnose",
            "small.onnx",
            "--input",
            "x=x.npy",
            "--source",
            source,
            "--target",
            target,
        ]);
        json(command.args(["--html", "faults.html"]), code)
    };
    let clean = diagnose("ort", "cpu", 0);
    assert_eq!(
        (clean["faults"].as_array().unwrap().len(), clean["clean_ops"].as_array().unwrap().len()),
        (0, 8)
    );
    for (fault, op, cause, rule) in [
        ("conv-pads-swapped", "onnx.Conv@17", "wrong_attribute", "`pads` is [1,1,0,0]"),
        ("leakyrelu-alpha-ignored", "onnx.LeakyRelu@17", "wrong_attribute", "`alpha` is 0.2"),
        ("conv-in-bf16", "onnx.Conv@17", "wrong_cast", "bf16"),
        ("conv-bias-ignored", "onnx.Conv@17", "input_ignored", "`B` is given"),
    ] {
        let found = diagnose("ort", &format!("ort?fault={fault}"), 1);
        let faults = found["faults"].as_array().unwrap();
        let told = &faults[0];
        assert_eq!(
            (faults.len(), &told["op"], &told["cause"]),
            (1, &op.into(), &cause.into()),
            "{fault}: {told}"
        );
        assert!(told["rule"].as_str().unwrap().contains(rule), "{fault}: {told}");
        assert_eq!((&told["blames"], &told["kind"]), (&"target".into(), &"operator".into()), "{told}");
        let page = std::fs::read_to_string(folder.path().join("faults.html")).unwrap();
        assert!(page.contains(cause) && page.contains("fails if"), "{fault}");
    }
    // The target is right where the source is not: that is told, and is no fault of the target.
    let found = diagnose("ort?fault=gemm-alpha-ignored", "cpu", 0);
    let told = &found["faults"][0];
    assert_eq!((&told["blames"], &told["op"]), (&"source".into(), &"onnx.Gemm@17".into()), "{found}");
    assert!(told["rule"].as_str().unwrap().contains("`alpha` is 0.5"), "{told}");
    assert!(found["clean_ops"].as_array().unwrap().contains(&"onnx.Gemm@17".into()), "{found}");
}

#[test]
fn runtimes_are_compared_on_one_suite() {
    let Some(folder) = folder() else { return };
    carve_onnx(folder.path(), "ort", "suite");
    let matrix = |targets: &str, code: i32| {
        let mut check = tapml(folder.path());
        json(check.args(["check", "suite", "--target", targets, "--fleet"]), code)
    };
    let report = matrix("ort,cpu", 0);
    assert_eq!((&report["cases"], &report["failed"]), (&16.into(), &0.into()), "each case on each: {report}");
    let report = matrix("ort,ort?fault=gemm-alpha-ignored", 1);
    let devices = report["devices"].as_array().unwrap();
    let failed = |device: &serde_json::Value| -> u64 {
        device["ops"].as_array().unwrap().iter().map(|op| op["failed"].as_u64().unwrap()).sum()
    };
    let mut all: Vec<u64> = devices.iter().map(failed).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1], "{report}");
}

/// The report of a printed command as a shell takes it.
fn run_command(folder: &Path, command: &str) -> serde_json::Value {
    let mut words = shlex::split(command).unwrap().into_iter();
    assert_eq!(words.next().as_deref(), Some("tapml"), "{command}");
    json(tapml(folder).args(words), 0)
}

#[test]
fn what_a_runtime_does_between_nodes_is_found_and_made_small() {
    let Some(folder) = folder() else { return };
    let run = |command: &str, target: &str, code: i32| {
        let mut it = tapml(folder.path());
        it.args([command, "chain.onnx", "--input", "x=x.npy", "--source", "ort", "--target", target]);
        json(it.args(["--html", "page.html"]), code)
    };
    let clean = run("diagnose", "ort", 0);
    assert_eq!(clean["faults"], serde_json::json!([]), "{clean}");
    let region = &run("migrate", "ort", 0)["regions"][0];
    assert_eq!((&region["nodes"], &region["passed"]), (&4.into(), &true.into()), "{region}");
    assert_eq!(region["runs"], 1, "{region}");
    for (fault, op, failing, cause, evidence) in [
        (
            "fused-conv-relu-dropped",
            "onnx.Conv@17+onnx.Relu@17",
            ["first", "cut"],
            "missing_term",
            "in `cut` (onnx.Relu@17): the node is left out",
        ),
        (
            "fused-silu-hard",
            "onnx.Sigmoid@17+onnx.Mul@17",
            ["gate", "gated"],
            "wrong_formula",
            "in `gate` (onnx.Sigmoid@17): `HardSigmoid` is computed in its place",
        ),
    ] {
        let word = format!("ort?fault={fault}");
        let found = run("diagnose", &word, 1);
        let told = &found["faults"][0];
        assert_eq!((&told["op"], &told["kind"]), (&op.into(), &"between".into()), "{fault}: {found}");
        assert_eq!(told["nodes"], serde_json::json!(failing), "{fault}: {told}");
        assert_eq!(told["cause"], cause, "{fault}: {told}");
        assert!(told["evidence"].as_str().unwrap().contains(evidence), "{fault}: {told}");
        assert_eq!(found["faults"].as_array().unwrap().len(), 1, "{fault}: {found}");
        let reduced = run_command(folder.path(), told["reproduce"].as_str().unwrap());
        assert_eq!(reduced["fails"], true, "{fault}: {reduced}");
        let report = run("migrate", &word, 1);
        assert_eq!(report["verdict"], "rejected", "{fault}: {report}");
        assert_eq!(report["regions"][0]["failing"], serde_json::json!(failing), "{fault}: {report}");
        let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
        assert!(page.contains("Nodes as one model") && page.contains(failing[1]), "{fault}");
    }
}

#[test]
fn arrays_beside_a_suite_are_refused() {
    let Some(folder) = folder() else { return };
    carve_onnx(folder.path(), "ort", "small.suite");
    let named = ["diagnose", "small.onnx", "--suite", "small.suite"];
    for model in [&named[..], &["diagnose", "small.suite"], &["migrate", "small.suite"]] {
        let mut command = tapml(folder.path());
        command.args(model).args(["--input", "x=x.npy", "--source", "ort", "--target", "cpu"]);
        let told = stderr(&mut command, 2);
        assert!(told.contains("arrays beside"), "{model:?}: {told}");
    }
    let page = ["diagnose", "small.suite", "--html", "page.html", "--source", "ort", "--target"];
    assert_eq!(json(tapml(folder.path()).args(page).arg("cpu"), 0)["faults"], serde_json::json!([]));
    // A faulty operator takes no other one out of the regions.
    let found = json(tapml(folder.path()).args(page).arg("ort?fault=gemm-alpha-ignored"), 1);
    assert_eq!(found["faults"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["clean_ops"].as_array().unwrap().len(), 7, "{found}");
}

/// Fails unless the arrays of a folder are what ONNX Runtime gives for the whole model.
const COMPARE: &str = r#"
import sys, numpy as np, onnxruntime
out, names = sys.argv[1], ["y", "best"]
expected = onnxruntime.InferenceSession("small.onnx").run(names, {"x": np.load("x.npy")})
found = [np.load(f"{out}/{name}.npy") for name in names]
assert [f.dtype for f in found] == [e.dtype for e in expected] and [f.shape for f in found] == [e.shape for e in expected]
assert abs(found[0] - expected[0]).max() < 1e-6 and found[1] == expected[1], (found, expected)
"#;

#[test]
fn a_model_runs_on_devices_and_gives_what_the_source_gives() {
    let Some(folder) = folder() else { return };
    let run = |out: &str, more: &[&str]| {
        let mut run = tapml(folder.path());
        run.args(["run", "small.onnx", "--input", "x=x.npy", "--out", out]).args(more);
        run
    };
    for (out, target, kernel) in [("e", "emulator", "conv_epilogue/portable"), ("o", "ort", "onnx.Conv@17")] {
        let report = json(&mut run(out, &["--target", target, "--repeat", "2"]), 0);
        assert_eq!(report["runs"][0]["seconds"].as_array().unwrap().len(), 2, "{report}");
        let conv = &report["ops"][0];
        assert_eq!(
            (&conv["platform"], &conv["reason"]),
            (&target.into(), &serde_json::Value::Null),
            "{conv}"
        );
        assert!(conv["kernel"].as_str().unwrap().contains(kernel), "{conv}");
        assert!(report["runs"][0]["outputs"][0]["max_difference"].as_f64().unwrap() < 1e-6, "{report}");
        let compared = python().current_dir(folder.path()).args(["-c", COMPARE, out]).output().unwrap();
        assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
    }
    // Sets whose names differ in what a folder's name cannot hold keep their outputs apart.
    for set in ["a b", "a_b"] {
        std::fs::create_dir_all(folder.path().join("sets").join(set)).unwrap();
        std::fs::copy(folder.path().join("x.npy"), folder.path().join("sets").join(set).join("x.npy"))
            .unwrap();
    }
    let mut sets = tapml(folder.path());
    let report =
        json(sets.args(["run", "small.onnx", "--inputs", "sets", "--target", "cpu", "--out", "s2"]), 0);
    for (at, name) in ["a_b", "a_b-2"].into_iter().enumerate() {
        assert_eq!(report["runs"][at]["folder"], name, "{report}");
        assert!(folder.path().join("s2").join(name).join("best.npy").exists());
    }
    // Outputs are replaced only where that is asked for, and other folders never.
    let refused = stderr(&mut run("e", &["--target", "cpu"]), 2);
    assert!(refused.contains("exists"), "{refused}");
    json(&mut run("e", &["--target", "cpu", "--overwrite"]), 0);
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    std::fs::write(folder.path().join("mine/file"), "kept").unwrap();
    stderr(&mut run("mine", &["--target", "cpu", "--overwrite"]), 2);
    assert!(folder.path().join("mine/file").exists());
    let text = stderr(
        tapml(folder.path()).args(["run", ".", "--target", "cpu", "--out", "t", "--input", "x=x.npy"]),
        2,
    );
    assert!(text.contains("is no ONNX model") && text.contains("tapml generate"), "{text}");
    assert!(!folder.path().join("t").exists());
}

#[test]
fn what_does_not_fit_is_told() {
    let Some(folder) = folder() else { return };
    let told = |arguments: &[&str]| stderr(tapml(folder.path()).args(arguments), 2);
    let carve =
        |input: &str| told(&["carve", "small.onnx", "--input", input, "--source", "ort", "--out", "s"]);
    assert!(carve("x=wide.npy").contains("takes f32[1, 3, 8, 8], found f32[1, 3, 8, 9]"));
    assert!(carve("z=x.npy").contains("no input `z`"));
    assert!(carve("x=none.npy").contains("none.npy"));
    assert!(carve("x=small.onnx").contains("no `.npy` array"));
    assert!(carve("x.npy").contains("expected NAME=FILE"));
    let none = told(&["carve", "small.onnx", "--source", "ort", "--out", "s"]);
    assert!(none.contains("no inputs given"), "{none}");
    let unknown =
        told(&["carve", "small.onnx", "--input", "x=x.npy", "--source", "ort?colour=red", "--out", "s"]);
    assert!(unknown.contains("--colour"), "{unknown}");
    assert!(!folder.path().join("s").exists());
    let mut missing = tapml(folder.path());
    missing.env("TAPML_PYTHON", "no-such-python");
    let missing = stderr(
        missing.args(["carve", "small.onnx", "--input", "x=x.npy", "--source", "ort", "--out", "s"]),
        2,
    );
    assert!(
        missing.contains("could not start `no-such-python`") && missing.contains("tapml[agents]"),
        "{missing}"
    );
}

/// Runs a script of a reproducer; its exit code and what it prints.
fn repro(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = python().current_dir(folder).arg("repro.py").args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_failing_call_becomes_a_model_and_a_script() {
    let Some(folder) = folder() else { return };
    carve_onnx(folder.path(), "ort", "suite");
    let reduce = |target: &str, op: &str, out: &str, more: &[&str]| {
        let mut reduce = tapml(folder.path());
        reduce.args(["reduce", "suite", "--op", op, "--target", target, "--out", out]).args(more);
        reduce
    };
    for (fault, op, elements, attributes) in [
        ("conv-pads-swapped", "onnx.Conv@17", 2, r#"{"pads":[1,1,0,0]}"#),
        ("leakyrelu-alpha-ignored", "onnx.LeakyRelu@17", 1, r#"{"alpha":0.2}"#),
        ("gemm-alpha-ignored", "onnx.Gemm@17", 2, r#"{"alpha":0.5}"#),
    ] {
        let report = json(&mut reduce(&format!("ort?fault={fault}"), op, fault, &[]), 0);
        assert_eq!((&report["fails"], &report["minimal"]), (&true.into(), &true.into()), "{report}");
        assert!(report["after"]["elements"].as_u64().unwrap() <= elements, "{fault}: {report}");
        let expected: serde_json::Value = serde_json::from_str(attributes).unwrap();
        assert_eq!(report["after"]["attributes"], expected, "{fault}: {report}");
        let bug = folder.path().join(fault);
        let script = std::fs::read_to_string(bug.join("repro.py")).unwrap();
        let code = script.split("\"\"\"\n").nth(1).unwrap();
        assert!(code.lines().filter(|line| !line.is_empty()).count() <= 15, "{code}");
        // The fault is in the agent, and the script runs the runtime as it is.
        assert_eq!(repro(&bug, &[]), (Some(0), String::new()), "{fault}");
        assert_eq!(repro(&bug, &["simplified"]), (Some(0), String::new()), "{fault}");
    }
    let report = json(&mut reduce("ort?fault=gemm-alpha-ignored", "onnx.Gemm@17", "aspects", &[]), 0);
    let aspect = |name: &str| {
        let all = report["aspects"].as_array().unwrap();
        all.iter().find(|aspect| aspect["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
    };
    let alpha = aspect("`alpha`");
    assert_eq!(alpha["fails"][0], "0.5", "{alpha}");
    assert_eq!(alpha["passes"], serde_json::json!(["absent", "1.0"]), "{alpha}");
    let readme = std::fs::read_to_string(folder.path().join("aspects/README.md")).unwrap();
    assert!(readme.contains("| `alpha` | 0.5; ") && readme.contains("| absent; 1.0 |"), "{readme}");
    // A runtime that gives something else.
    let bug = folder.path().join("leakyrelu-alpha-ignored");
    let script = std::fs::read_to_string(bug.join("repro.py")).unwrap();
    let wrong = script.replace(".run(None, feed)[0]", ".run(None, feed)[0] * 1.001");
    assert_ne!(script, wrong);
    std::fs::write(bug.join("repro.py"), wrong).unwrap();
    let (code, text) = repro(&bug, &["simplified"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(": expected ") && text.contains("1 of 1 elements are wrong"), "{text}");

    // Lines for the default device would show nothing of another.
    let target = "ort?fault=gemm-alpha-ignored&provider=CPUExecutionProvider";
    json(&mut reduce(target, "onnx.Gemm@17", "provider", &[]), 0);
    let bug = folder.path().join("provider");
    assert!(bug.join("model.onnx").is_file() && !bug.join("repro.py").exists());

    // It does not fail as it is.
    let text = stderr(&mut reduce("ort", "onnx.Conv@17", "none", &[]), 1);
    assert!(text.contains("onnx.Conv@17"), "{text}");
    assert!(!folder.path().join("none").exists());
}

#[test]
fn the_sizes_that_matter_are_told() {
    let Some(folder) = folder() else { return };
    let carve = ["carve", "tail.onnx", "--input", "t=t.npy", "--source", "ort", "--out", "tail.suite"];
    json(tapml(folder.path()).args(carve), 0);
    let mut reduce = tapml(folder.path());
    reduce.args(["reduce", "tail.suite", "--op", "onnx.Sigmoid@17", "--out", "repro"]);
    let report = json(reduce.args(["--target", "ort?fault=sigmoid-tail-not-written"]), 0);
    let rule = &report["sizes"][0];
    let told = (rule["axis"].as_str().unwrap(), rule["fails"].as_str().unwrap());
    assert_eq!(told, ("size 0 of input 0", "it is no multiple of 4"), "{report}");
    let readme = std::fs::read_to_string(folder.path().join("repro/README.md")).unwrap();
    assert!(readme.contains("fails if it is no multiple of 4"), "{readme}");
}

#[test]
fn a_failing_call_of_a_kernel_becomes_small() {
    let Some(folder) = folder() else { return };
    carve_onnx(folder.path(), "ort", "suite");
    let kernel = common::kernel(folder.path(), "onnx.LeakyRelu");
    let right = std::fs::read_to_string(&kernel).unwrap();
    let wrong = right.replace("< 0.0", "< -0.5");
    assert_ne!(right, wrong, "{right}");
    std::fs::write(&kernel, wrong).unwrap();
    let mut reduce = tapml(folder.path());
    reduce.args(["reduce", "suite", "--op", "onnx.LeakyRelu@17", "--target", "emulator", "--out", "bug"]);
    reduce.arg("--kernel").arg(format!("onnx.LeakyRelu={}", kernel.display()));
    let report = json(&mut reduce, 0);
    assert_eq!(report["after"]["elements"], 1, "{report}");
    let bug = folder.path().join("bug");
    let ran = std::fs::read_to_string(bug.join("kernels/0.wgsl")).unwrap();
    assert!(ran.contains("v < -0.5") && bug.join("index.html").is_file(), "{ran}");
}

#[test]
fn the_standards_own_node_tests_run_on_a_platform() {
    let empty = tempfile::tempdir().unwrap();
    let mut check = tapml(empty.path());
    let told = stderr(check.args(["device", "check", "cpu", "--nodes", "."]), 2);
    assert!(told.contains("holds no node test of ONNX") && told.contains("pip download"), "{told}");
    let Ok(nodes) = std::env::var("TAPML_ONNX_NODES") else {
        return tapml_testing::skip("ONNX's node tests", "TAPML_ONNX_NODES names no folder of them");
    };
    let report = json(tapml(empty.path()).args(["device", "check", "cpu", "--nodes", &nodes]), 0);
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("failed"), 0, "{report}");
    assert!(count("passed") > 7500 && count("skipped") < 50, "{} {}", report["passed"], report["skipped"]);
    let ops = report["ops"].as_array().unwrap();
    let conv = ops.iter().find(|op| op["op"] == "onnx.Conv").unwrap();
    assert!(conv["passed"].as_u64().unwrap() > 5, "{conv}");
    let reasons = report["apart"].as_array().unwrap();
    assert!(reasons.iter().all(|apart| !apart["reason"].as_str().unwrap().is_empty()));
}
