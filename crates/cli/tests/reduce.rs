//! `tapml reduce`: a failing case becomes a reproducer; one that passes, or cannot be run, says so.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, json, kernel, stderr, tapml};
use std::path::Path;

/// A kernel of rms_norm with a wrong mean.
fn wrong_norm(folder: &Path) -> String {
    let file = kernel(folder, "rms_norm");
    let right = std::fs::read_to_string(&file).unwrap();
    let wrong = right.replace("/ f32(K) + EPS", "/ f32(K + 1u) + EPS");
    assert_ne!(right, wrong);
    std::fs::write(&file, wrong).unwrap();
    format!("rms_norm={}", file.display())
}

#[test]
fn a_failing_case_becomes_a_reproducer() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, wrong) = (carve_small(folder.path()), wrong_norm(folder.path()));
    let mut check = tapml(folder.path());
    check.arg("check").arg(&suite).args(["--target", "emulator", "--op", "rms_norm", "--kernel", &wrong]);
    let checked = json(&mut check, 1);
    let case = checked["ops"][0]["failures"][0]["case"].as_str().unwrap().to_string();

    let mut reduce = tapml(folder.path());
    reduce
        .arg("reduce")
        .arg(&suite)
        .args(["--case", &case, "--target", "emulator", "--kernel", &wrong, "--out", "bug"]);
    let report = json(&mut reduce, 0);
    assert_eq!((&report["case"], &report["op"]), (&case.as_str().into(), &"rms_norm".into()));
    assert_eq!((&report["fails"], &report["minimal"]), (&true.into(), &true.into()));
    assert_eq!(report["before"]["elements"].as_u64().unwrap() % 128, 0);
    assert!(report["after"]["elements"].as_u64().unwrap() <= 4, "{report}");
    assert_eq!(report["stability"]["failed"], report["stability"]["runs"]);
    for file in ["README.md", "case.json", "index.html", "Cargo.toml", "src/main.rs", "kernels/0.wgsl"] {
        assert!(folder.path().join("bug").join(file).is_file(), "{file}");
    }

    let mut again = tapml(folder.path());
    again
        .arg("reduce")
        .arg(&suite)
        .args(["--op", "rms_norm", "--target", "emulator", "--kernel", &wrong, "--out", "bug"]);
    let text = stderr(&mut again, 2);
    assert!(text.contains("exists already"), "{text}");
    stderr(again.arg("--overwrite"), 0);
}

#[test]
fn a_case_that_passes_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let mut reduce = tapml(folder.path());
    reduce.arg("reduce").arg(&suite).args([
        "--case",
        "p0.s0.model.norm",
        "--target",
        "emulator",
        "--out",
        "bug",
    ]);
    let report = json(&mut reduce, 1);
    assert_eq!(report["fails"], false);
    let mut any = tapml(folder.path());
    any.arg("reduce").arg(&suite).args(["--op", "rope", "--target", "emulator", "--out", "bug"]);
    let text = stderr(&mut any, 1);
    assert!(text.contains("no case of `rope` fails on emulator"), "{text}");
    assert!(!folder.path().join("bug").exists());
}

#[test]
fn what_cannot_be_run_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let error = |args: &[&str]| {
        stderr(tapml(folder.path()).arg("reduce").arg(&suite).args(args).args(["--out", "bug"]), 2)
    };
    let text = error(&["--case", "p0.s0.nothing", "--target", "emulator"]);
    assert!(text.contains("no case `p0.s0.nothing`") && text.contains("hint"), "{text}");
    let text = error(&["--case", "p0.s0.model.norm", "--target", "cpu"]);
    assert!(text.contains("without kernels"), "{text}");
    let text = error(&["--target", "emulator"]);
    assert!(text.contains("--case"), "{text}");
}
