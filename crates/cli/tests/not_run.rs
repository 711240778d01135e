//! A kernel that did not run is never called clean: `tapml diagnose` lists it with the reason and ends with 2.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, draft, json, kernel, stderr, tapml};
use serde_json::Value;
use std::path::Path;

/// A diagnosis with this kernel, which must end with `code`.
fn diagnose(folder: &Path, suite: &Path, kernels: &[String], code: i32) -> Value {
    let mut command = tapml(folder);
    command.args(["diagnose", &draft(), "--target", "emulator", "--operators", "--html", "page.html"]);
    for kernel in kernels {
        command.args(["--kernel", kernel]);
    }
    json(command.arg("--suite").arg(suite), code)
}

/// A file with the text of a built-in kernel and this change of it.
fn change_kernel(folder: &Path, op: &str, from: &str, to: &str) -> String {
    let file = kernel(folder, op);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{op} has no `{from}`");
    std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
    format!("{op}={}", file.display())
}

/// The one operator that was not run, with its kernel and the reason.
fn only_not_run(report: &Value) -> (String, String, String) {
    let [one] = report["not_run"].as_array().unwrap().as_slice() else { panic!("{:#}", report["not_run"]) };
    let [op, kernel, reason] = ["op", "kernel", "reason"].map(|key| one[key].as_str().unwrap().to_string());
    assert!(!report["clean_ops"].as_array().unwrap().contains(&op.as_str().into()), "{op} is called clean");
    (op, kernel, reason)
}

#[test]
fn a_kernel_beyond_the_device_is_not_run_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite) = (folder.path(), carve_small(folder.path()));
    let rope = change_kernel(path, "rope", "@workgroup_size(256)", "@workgroup_size(1024)");
    let report = diagnose(path, &suite, std::slice::from_ref(&rope), 2);
    assert_eq!(report["faults"], serde_json::json!([]));
    let (op, kernel, reason) = only_not_run(&report);
    assert_eq!((op.as_str(), kernel.as_str()), ("rope", "rope/rope.wgsl"));
    assert!(reason.contains("max_invocations = 1024"), "{reason}");
    let page = std::fs::read_to_string(path.join("page.html")).unwrap();
    assert!(page.contains("id=\"not-run\"") && page.contains("not all run"), "{page}");
    let memory = "var<workgroup> much: array<f32, 16384>;\n@compute";
    let append = change_kernel(path, "append", "@compute", memory);
    let text = std::fs::read_to_string(path.join("append.wgsl")).unwrap();
    let used = text.replacen("{\n", "{\n    much[0] = 1.0;\n", 1);
    std::fs::write(path.join("append.wgsl"), used).unwrap();
    let (op, _, reason) = only_not_run(&diagnose(path, &suite, &[append], 2));
    assert!(op == "append" && reason.contains("max_workgroup_memory = 65536"), "{reason}");
    let mut command = tapml(path);
    command.args(["diagnose", &draft(), "--target", "emulator", "--operators", "--kernel", &rope]);
    let output = command.arg("--suite").arg(&suite).assert().code(2).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("not run: rope (rope/rope.wgsl): ") && text.contains(", 1 not run;"), "{text}");
}

#[test]
fn a_kernel_of_an_operator_that_the_model_lacks_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite) = (folder.path(), carve_small(folder.path()));
    let softcap = format!("softcap={}", kernel(path, "softcap").display());
    let (op, kernel, reason) = only_not_run(&diagnose(path, &suite, std::slice::from_ref(&softcap), 2));
    assert_eq!((op.as_str(), kernel.as_str()), ("softcap", "softcap/softcap.wgsl"));
    assert!(reason.contains("no operator `softcap`"), "{reason}");
    let mut check = tapml(path);
    check.arg("check").arg(&suite).args(["--target", "emulator", "--kernel", &softcap]);
    let error = stderr(&mut check, 1);
    assert!(error.contains("was not used"), "{error}");
}

#[test]
fn a_fault_elsewhere_ends_with_1_and_what_did_not_run_is_still_listed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite) = (folder.path(), carve_small(folder.path()));
    let rope = change_kernel(path, "rope", "b * cosine + a * sine", "b * cosine - a * sine");
    let softcap = format!("softcap={}", kernel(path, "softcap").display());
    let report = diagnose(path, &suite, &[rope, softcap], 1);
    assert_eq!(report["faults"].as_array().unwrap().len(), 1);
    assert_eq!(only_not_run(&report).0, "softcap");
}
