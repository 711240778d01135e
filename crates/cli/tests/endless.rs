//! A kernel that never ends: the emulator stops it and names the line, and Ctrl-C is heard while it runs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carved, changed_kernel, diagnosing, draft, json, stops, tapml};
use std::path::Path;
use std::time::{Duration, Instant};

/// A `rope` that goes round for ever.
fn endless(folder: &Path) -> String {
    changed_kernel(folder, "rope", ["i < 4u; i++", "i < 4u; i += 0u"])
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
    let arguments = ["--target", "emulator?timeout=600", "--operators", "--kernel", &rope];
    let child = diagnosing(path, &arguments, &suite);
    std::thread::sleep(Duration::from_secs(4));
    stops(child, Duration::from_millis(3500));
}
