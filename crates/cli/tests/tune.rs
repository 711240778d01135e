//! `tapml tune`: measured choices among the built-in kernels, kept, shipped and refused.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Agent, carve_small, detector, draft, json, stderr, tapml};
use serde_json::Value;
use std::path::Path;

/// The command with a folder of the test's own for what is kept.
fn keeping(folder: &Path) -> assert_cmd::Command {
    let mut command = tapml(folder);
    command.env("TAPML_CACHE", folder.join("cache"));
    command
}

fn run_tune(folder: &Path, more: &[&str]) -> Value {
    let suite = folder.join("draft.suite");
    let mut command = keeping(folder);
    command.args(["tune", &draft(), "--target", "emulator", "--suite"]).arg(suite).args(more);
    json(&mut command, 0)
}

/// The kernels of `linear` that a check of the suite ran.
fn kernels(folder: &Path, target: &str) -> Vec<String> {
    let mut command = keeping(folder);
    command.args(["check", "draft.suite", "--target", target, "--op", "linear"]);
    let report = json(&mut command, 0);
    let ops = report["ops"].as_array().unwrap();
    ops.iter().map(|op| op["kernel"].as_str().unwrap().to_string()).collect()
}

/// The file with this kernel for every `linear`.
fn write_choice(file: &Path, kernel: &str) -> String {
    let mut choices: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut changed = 0;
    for choice in choices["choices"].as_array_mut().unwrap().iter_mut().filter(|c| c["op"] == "linear") {
        choice["kernel"] = kernel.into();
        changed += 1;
    }
    assert!(changed > 0, "{choices}");
    choices.to_string()
}

#[test]
fn the_choices_of_a_device_are_kept_and_shipped() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    carve_small(here);
    let report = run_tune(here, &[]);
    let linear: Vec<&Value> =
        report["ops"].as_array().unwrap().iter().filter(|op| op["op"] == "linear").collect();
    assert!(!linear.is_empty(), "{report}");
    for op in &linear {
        let seconds = op["seconds"].as_array().unwrap();
        let names: Vec<&str> = seconds.iter().map(|s| s[0].as_str().unwrap()).collect();
        let first = ["linear/portable", "linear/portable@outputs=8", "linear/portable@outputs=16"];
        assert!(names.starts_with(&first) && names.contains(&"linear/subgroup"), "{op}");
        // A step of one token tells nothing of tiles.
        assert!(!names.iter().any(|name| name.contains("rows=")), "{op}");
        let least = seconds.iter().min_by(|a, b| a[1].as_f64().unwrap().total_cmp(&b[1].as_f64().unwrap()));
        assert_eq!(op["kernel"], least.unwrap()[0], "{op}");
        assert!(op["failed"].as_array().unwrap().is_empty(), "{op}");
    }
    // What is kept is what commands run with from then on, unless they are told otherwise.
    let kept = Path::new(report["file"].as_str().unwrap());
    assert!(kept.starts_with(here.join("cache")), "{report}");
    std::fs::write(kept, write_choice(kept, "linear/subgroup")).unwrap();
    assert_eq!(kernels(here, "emulator"), ["linear/subgroup"]);
    assert_eq!(kernels(here, "emulator?tuning=off"), ["linear/portable"]);
    // The same device elsewhere is the same device.
    let agent = Agent::start(here, &["--target", "emulator"]);
    assert_eq!(kernels(here, &agent.device_word("emulator")), ["linear/subgroup"]);
    assert_eq!(kernels(here, &agent.device_word("emulator?tuning=off")), ["linear/portable"]);
    // What cannot be read there counts as none, so that another release goes on.
    let text = std::fs::read(kept).unwrap();
    std::fs::write(kept, "{").unwrap();
    assert_eq!(kernels(here, "emulator"), ["linear/portable"]);
    std::fs::write(kept, text).unwrap();
    // A file of one's own goes before what is kept.
    let shipped = run_tune(here, &["--for", "prompt", "--out", "shipped.json"]);
    assert_eq!(shipped["file"], "shipped.json");
    std::fs::copy(kept, here.join("shipped.json")).unwrap();
    std::fs::remove_file(kept).unwrap();
    assert_eq!(kernels(here, "emulator"), ["linear/portable"]);
    assert_eq!(kernels(here, "emulator?tuning=shipped.json"), ["linear/subgroup"]);
    assert_eq!(kernels(here, &agent.device_word("emulator?tuning=shipped.json")), ["linear/subgroup"]);
    for (chosen, ran) in [
        ("linear/portable@rows=16,columns=64,depth=8", "linear/portable@rows=16,columns=64,depth=8"),
        // A setting that another release has.
        ("linear/subgroup@rows=3", "linear/subgroup"),
    ] {
        let text = write_choice(&here.join("shipped.json"), chosen);
        std::fs::write(here.join("other.json"), text).unwrap();
        assert_eq!(kernels(here, "emulator?tuning=other.json"), [ran]);
    }
}

/// Chooses this kernel for an operator.
fn with_fused(file: &Path, op: &str, kernel: &str) {
    let mut choices: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let all = choices["choices"].as_array_mut().unwrap().iter_mut();
    for choice in all.filter(|choice| choice["op"] == op) {
        choice["kernel"] = kernel.into();
    }
    std::fs::write(file, choices.to_string()).unwrap();
}

#[test]
fn a_fused_operator_runs_by_the_chosen_row_or_is_left_unfused() {
    const GPU: &str = "emulator?kind=gpu";
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let suite = carve_small(here);
    let mut tune = keeping(here);
    let report = json(tune.args(["tune", &draft(), "--target", GPU, "--suite"]).arg(&suite), 0);
    let names = |op: &str| -> Vec<String> {
        let ops = report["ops"].as_array().unwrap().iter().filter(|found| found["op"] == op);
        let seconds = ops.flat_map(|op| op["seconds"].as_array().unwrap());
        seconds.map(|kernel| kernel[0].as_str().unwrap().to_string()).collect()
    };
    let attention = "rope_append_attention";
    let rows = ["rope_append_attention/gemv", "rope_append_attention/split", "unfused"];
    assert_eq!(names(attention), rows, "{report}");
    assert!(names("norm_linear").starts_with(&["norm_linear/gemv".into(), "unfused".into()]), "{report}");
    for op in report["ops"].as_array().unwrap() {
        let least = op["seconds"].as_array().unwrap().iter().map(|s| s[1].as_f64().unwrap()).reduce(f64::min);
        let chosen = op["seconds"].as_array().unwrap().iter().find(|s| s[0] == op["kernel"]).unwrap();
        assert_eq!(chosen[1].as_f64(), least, "{op}");
    }
    // Whatever was faster here, each of them can be named.
    let kept = Path::new(report["file"].as_str().unwrap());
    std::fs::write(here.join("short.txt"), "The cat sat\n").unwrap();
    let deployed = |ledger: &str| -> Vec<String> {
        let mut migrate = keeping(here);
        migrate.args(["migrate", &draft(), "--target", GPU, "--prompts", "short.txt", "--ledger", ledger]);
        let report = json(&mut migrate, 0);
        let decode = report["deployed"].as_array().unwrap().iter().filter(|row| row["phase"] == "decode");
        decode.map(|row| row["kernel"].as_str().unwrap().to_string()).collect()
    };
    let text = || {
        let mut generate = keeping(here);
        generate.args(["generate", &draft(), "--target", GPU, "--ids", "5,9,11", "--max-tokens", "4"]);
        json(&mut generate, 0)["ids"].clone()
    };
    with_fused(kept, attention, "rope_append_attention/split");
    let mut check = keeping(here);
    let checked = json(check.args(["check", "draft.suite", "--target", GPU, "--op", attention]), 0);
    assert_eq!(checked["ops"][0]["kernel"], "rope_append_attention/split");
    let (rows, split) = (deployed("split"), text());
    assert!(rows.contains(&"rope_append_attention/split".to_string()), "{rows:?}");
    with_fused(kept, attention, "unfused");
    let mut check = keeping(here);
    let none = stderr(check.args(["check", "draft.suite", "--target", GPU, "--op", attention]), 2);
    assert!(none.contains("no operator `rope_append_attention`"), "{none}");
    let (rows, unfused) = (deployed("unfused"), text());
    let fused = |row: &String| row.starts_with(attention);
    assert!(!rows.iter().any(fused) && rows.iter().any(|row| row.starts_with("attention/")), "{rows:?}");
    assert_eq!(split, unfused);
}

#[test]
fn a_kernel_is_printed_with_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let name = "linear/portable@rows=16,columns=64,depth=8";
    let report = json(tapml(folder.path()).args(["kernel", name]), 0);
    assert_eq!((&report["kernel"], &report["choice"]), (&name.into(), &name.into()));
    let constants = report["constants"].as_array().unwrap();
    let value =
        |name: &str| constants.iter().find(|c| c["name"] == name).map(|c| c["value"].as_f64().unwrap());
    assert_eq!([value("ROWS"), value("COLUMNS"), value("OUTPUTS")], [Some(16.0), Some(64.0), None]);
    let text = report["text"].as_str().unwrap();
    assert!(text.contains(&format!("--kernel {name}=FILE")), "{text}");
    // It serves as one's own, by that name.
    std::fs::write(folder.path().join("mine.wgsl"), text).unwrap();
    carve_small(folder.path());
    let mut check = tapml(folder.path());
    check.args(["check", "draft.suite", "--target", "emulator", "--op", "linear", "--kernel"]);
    let report = json(check.arg(format!("{name}=mine.wgsl")), 0);
    assert_eq!(report["ops"][0]["kernel"], "linear/mine.wgsl");
    let unknown = stderr(tapml(folder.path()).args(["kernel", "linear/portable@rows=17"]), 2);
    assert!(unknown.contains("linear/portable@outputs=8") && unknown.contains("rows=17"), "{unknown}");
}

#[test]
fn files_that_are_no_choices_for_the_device_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let suite = carve_small(here);
    let refused = |target: &str| {
        let mut command = keeping(here);
        stderr(command.arg("check").arg(&suite).args(["--target", target, "--op", "linear"]), 2)
    };
    assert!(refused("emulator?tuning=none.json").contains("none.json"));
    std::fs::write(here.join("torn.json"), "{\"schema\": 1, \"platf").unwrap();
    let torn = refused("emulator?tuning=torn.json");
    assert!(torn.contains("torn.json") && torn.contains("tapml tune"), "{torn}");
    let other = r#"{"schema": 1, "platform": "vulkan", "device": "GPU X", "driver": "1", "choices": []}"#;
    std::fs::write(here.join("other.json"), other).unwrap();
    let other = refused("emulator?tuning=other.json");
    assert!(other.contains("GPU X") && other.contains("tuning=off"), "{other}");
    let cpu = stderr(keeping(here).args(["tune", &draft(), "--target", "cpu"]), 2);
    assert!(cpu.contains("`cpu` has no kernels"), "{cpu}");
}

#[test]
fn the_kernels_of_an_onnx_model_are_measured_and_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    detector(here);
    let mut tune = keeping(here);
    let report = json(tune.args(["tune", "detector.onnx", "--input", "x=x.npy", "--target", "emulator"]), 0);
    let ops = report["ops"].as_array().unwrap();
    let names = |op: &Value| -> Vec<String> {
        let kernels = op["seconds"].as_array().unwrap().iter();
        kernels.map(|kernel| kernel[0].as_str().unwrap().to_string()).collect()
    };
    // The default comes first: 8 channels fill half a tile.
    let all = ["conv_epilogue/portable", "conv_epilogue/tiled", "unfused"];
    assert!(ops.iter().any(|op| names(op) == all), "{report}");
    let kept = Path::new(report["file"].as_str().unwrap());
    for kernel in &all[..2] {
        with_fused(kept, "conv_epilogue", kernel);
        let mut inspect = keeping(here);
        inspect.args(["inspect", "detector.onnx", "--input", "x=x.npy", "--lowered", "--target", "emulator"]);
        let report = json(&mut inspect, 0);
        let nodes = report["phases"][0]["nodes"].as_array().unwrap();
        let fused = nodes.iter().find(|node| node["op"] == "conv_epilogue").unwrap();
        assert_eq!(&fused["kernel"], kernel, "{report}");
    }
    // A suite of the model has the calls already, and the weights with them.
    let mut carve = keeping(here);
    carve.args([
        "carve",
        "detector.onnx",
        "--input",
        "x=x.npy",
        "--source",
        "cpu",
        "--out",
        "detector.suite",
    ]);
    json(&mut carve, 0);
    let of_suite = json(keeping(here).args(["tune", "detector.suite", "--target", "emulator"]), 0);
    // What stands in the place of a fused operator is told only where it was faster, which may differ between two runs.
    let fused = |report: &Value| -> Vec<Value> {
        let ops = report["ops"].as_array().unwrap().iter();
        ops.filter(|op| op["op"] == "conv_epilogue").map(|op| op["inputs"].clone()).collect()
    };
    assert_eq!(fused(&of_suite), fused(&report), "{of_suite}");
    let none = stderr(keeping(here).args(["tune", "detector.onnx", "--target", "emulator"]), 2);
    assert!(none.contains("no inputs given"), "{none}");
}
