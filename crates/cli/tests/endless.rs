//! A kernel that never ends: the emulator stops it and names the line, and Ctrl-C is heard while it runs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carved, draft, json, kernel, tapml};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A `rope` that goes round for ever.
fn endless(folder: &Path) -> String {
    let file = kernel(folder, "rope");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("i < 4u; i++", "i < 4u; i += 0u")).unwrap();
    format!("rope={}", file.display())
}

#[test]
fn a_kernel_that_never_ends_is_a_fault_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, rope) = (folder.path(), carved(folder.path()), endless(folder.path()));
    let text = std::fs::read_to_string(path.join("rope.wgsl")).unwrap();
    let line = 1 + text.lines().position(|line| line.contains("i += 0u")).unwrap();
    let start = Instant::now();
    let mut command = tapml(path);
    command.args(["diagnose", &draft(), "--target", "emulator?timeout=1", "--operators", "--kernel", &rope]);
    let report = json(command.arg("--suite").arg(&suite), 1);
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&fault["op"], &fault["cause"]), (&"rope".into(), &"crash".into()));
    let evidence = fault["evidence"].as_str().unwrap();
    assert!(evidence.contains("rope.wgsl:") && evidence.contains("still running"), "{evidence}");
    let told: usize =
        evidence.split("rope.wgsl:").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
    assert!((line..line + 20).contains(&told), "{told} is not in the loop of line {line}");
    assert!(start.elapsed() < Duration::from_secs(60), "every call waits anew: {:?}", start.elapsed());
}

#[test]
fn the_first_request_to_stop_ends_a_diagnosis_within_such_a_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, rope) = (folder.path(), carved(folder.path()), endless(folder.path()));
    let child = Command::new(assert_cmd::cargo::cargo_bin("tapml"))
        .args(["diagnose", &draft(), "--target", "emulator?timeout=600", "--operators", "--kernel", &rope])
        .arg("--suite")
        .arg(&suite)
        .current_dir(path)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let start = Instant::now();
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("stopped on request"), "{text}");
    assert!(start.elapsed() < Duration::from_millis(3500), "{:?}", start.elapsed());
}
