//! A language model as ONNX Runtime's GenAI exports them: TapML's kernels take it whole, for a prompt and for the step behind it,
//! and give what ONNX Runtime gives.
#![allow(clippy::unwrap_used)]

mod common;

use common::json;
use common::python::{ONNX_RUNTIME, has_packages, python, tapml};
use std::path::Path;

/// Fails unless the logits of a folder are what ONNX Runtime gave for the whole model.
const COMPARE: &str = r#"
import sys, numpy as np
found, expected = (np.load(name) for name in sys.argv[1:])
assert found.dtype == expected.dtype and found.shape == expected.shape, (found.shape, expected.shape)
far = abs(found - expected).max() / abs(expected).max()
assert far < 1e-5 and (found.argmax(-1) == expected.argmax(-1)).all(), far
"#;

/// A folder with the model and its inputs; `None`, and a skip, if Python lacks its packages.
fn folder(more: &[&str]) -> Option<tempfile::TempDir> {
    if !has_packages(ONNX_RUNTIME, "ONNX Runtime") {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = tapml_testing::root().join("tools/onnx_language_model.py");
    let made = python().arg(script).arg("--out").arg(folder.path()).args(more).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(folder)
}

/// Migrates the model from ONNX Runtime and runs it, for the inputs of a step.
fn migrate_and_run(folder: &Path, step: &str, target: &str) {
    let mut migrate = tapml(folder);
    migrate.args(["migrate", "model.onnx", "--inputs", step, "--source", "ort", "--target", target]);
    let report = json(&mut migrate, 0);
    assert_eq!(report["verdict"], "accepted", "{step} on {target}: {report}");
    let out = format!("{step}-{target}");
    let mut run = tapml(folder);
    run.args(["run", "model.onnx", "--inputs", step, "--source", "ort", "--target", target, "--out", &out]);
    let report = json(&mut run, 0);
    for op in report["ops"].as_array().unwrap() {
        assert_eq!(
            (&op["platform"], &op["reason"]),
            (&target.into(), &serde_json::Value::Null),
            "{step}: {op}"
        );
    }
    let files = [format!("{out}/logits.npy"), format!("{step}.logits.npy")];
    let compared = python().current_dir(folder).args(["-c", COMPARE]).args(files).output().unwrap();
    assert!(compared.status.success(), "{step} on {target}: {}", String::from_utf8_lossy(&compared.stderr));
}

#[test]
fn a_prompt_and_a_step_of_generation_run_whole_on_the_emulator() {
    let Some(folder) = folder(&[]) else { return };
    for step in ["prompt", "decode"] {
        migrate_and_run(folder.path(), step, "emulator");
    }
}

#[test]
fn a_prompt_and_a_step_of_generation_run_whole_on_vulkan() {
    let devices = json(common::tapml(Path::new(".")).args(["device", "list"]), 0);
    if !devices["devices"].as_array().unwrap().iter().any(|device| device["platform"] == "vulkan") {
        tapml_testing::skip("vulkan", "no adapter");
        return;
    }
    let Some(folder) = folder(&["--packed", "--bits", "8", "--seed", "3"]) else { return };
    for step in ["prompt", "decode"] {
        migrate_and_run(folder.path(), step, "vulkan");
    }
}
