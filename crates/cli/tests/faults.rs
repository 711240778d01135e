//! Bad input and bad luck: each ends with exit code 2, says what to do, and loses nothing.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, draft, json, kernel, prompts, stderr, tapml};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_path_that_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["nowhere", "."] {
        let text = stderr(tapml(folder.path()).args(["inspect", path]), 2);
        assert!(text.contains("config.json") && text.contains("hint"), "{text}");
    }
}

#[test]
fn a_suite_with_a_flipped_byte_names_file_and_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let path = suite.join("tensors.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let text = stderr(tapml(folder.path()).arg("check").arg(&suite).args(["--target", "cpu"]), 2);
    assert!(text.contains("tensors.bin"), "{text}");
    assert!(text.contains("hint"), "{text}");
}

#[test]
fn a_suite_of_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let other = tapml_testing::model("llama");
    let text = stderr(
        tapml(folder.path()).arg("check").arg(&suite).args(["--target", "cpu", "--model"]).arg(other),
        2,
    );
    assert!(text.contains("llama_draft") && text.contains("weight"), "{text}");
}

#[test]
fn a_kernel_file_that_does_not_parse_or_has_other_bindings() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let file = kernel(folder.path(), "last_row");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = tapml(folder.path());
        command.arg("check").arg(&suite).args(["--target", "emulator", "--kernel"]);
        stderr(command.arg(format!("rms_norm={}", file.display())), 2)
    };
    let text = check("\n\nfn main( {");
    assert!(text.contains("last_row.wgsl:3"), "{text}");
    let text = check(
        "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n@compute @workgroup_size(64) fn main() { y[0] = 1.0; }\n",
    );
    assert!(text.contains("binding"), "{text}");
    let text = stderr(
        tapml(folder.path()).arg("check").arg(&suite).args([
            "--target",
            "emulator",
            "--kernel",
            "rms_norm=absent.wgsl",
        ]),
        2,
    );
    assert!(text.contains("absent.wgsl"), "{text}");
}

#[test]
fn a_prompt_longer_than_the_context() {
    let folder = tempfile::tempdir().unwrap();
    let ids = vec!["5"; 600].join(",");
    let text = stderr(tapml(folder.path()).args(["generate", &draft(), "--ids", &ids, "--target", "cpu"]), 2);
    assert!(text.contains("600 tokens") && text.contains("512"), "{text}");
    let text =
        stderr(tapml(folder.path()).args(["generate", &draft(), "--ids", "4096", "--target", "cpu"]), 2);
    assert!(text.contains("4096"), "{text}");
}

#[test]
fn an_existing_suite_is_not_overwritten_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let before = std::fs::read(suite.join("suite.json")).unwrap();
    let text = stderr(tapml(folder.path()).args(["carve", &draft(), "--out"]).arg(&suite), 2);
    assert!(text.contains("overwrite"), "{text}");
    assert_eq!(std::fs::read(suite.join("suite.json")).unwrap(), before);
}

#[test]
fn a_full_disk_leaves_no_half_suite() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(&disk).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        tapml_testing::skip("tmpfs", "a small file system cannot be mounted here");
        return;
    }
    let text = stderr(tapml(folder.path()).args(["carve", &draft(), "--out"]).arg(disk.join("s")), 2);
    let left = std::fs::read_dir(&disk).unwrap().count();
    let unmounted = Command::new("umount").arg(&disk).status();
    assert!(text.contains("space") && text.contains("hint"), "{text}");
    assert_eq!(left, 0, "something is left on the full disk");
    assert!(unmounted.is_ok_and(|s| s.success()));
}

/// Starts a migration and stops it by `signal` once its ledger has an accepted operator; gives the exit code and stderr.
fn stop_migration(folder: &Path, signal: &str) -> (Option<i32>, String) {
    let ledger = folder.join("ledger/ledger.json");
    let child = Command::new(assert_cmd::cargo::cargo_bin("tapml"))
        .args([
            "migrate",
            &draft(),
            "--target",
            "emulator",
            "--steps",
            "2",
            "--ledger",
            "ledger",
            "--prompts",
            "prompts.txt",
        ])
        .current_dir(folder)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !std::fs::read_to_string(&ledger).is_ok_and(|text| text.contains("accepted")) {
        assert!(start.elapsed() < Duration::from_secs(300), "no operator was accepted in time");
        std::thread::sleep(Duration::from_millis(5));
    }
    Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_interrupted_migration_resumes() {
    for signal in ["-INT", "-KILL"] {
        let folder = tempfile::tempdir().unwrap();
        prompts(folder.path());
        let (code, text) = stop_migration(folder.path(), signal);
        if signal == "-INT" && code != Some(0) {
            assert_eq!(code, Some(2), "{text}");
            assert!(text.contains("run the same command again"), "{text}");
        }
        let mut again = tapml(folder.path());
        again.args([
            "migrate",
            &draft(),
            "--target",
            "emulator",
            "--steps",
            "2",
            "--ledger",
            "ledger",
            "--prompts",
            "prompts.txt",
        ]);
        let report = json(&mut again, 0);
        assert_eq!(report["verdict"], "accepted", "after {signal}");
        assert!(report["coverage"]["calls"] == report["coverage"]["checked"]);
    }
}

/// Waits until the log has this text.
fn wait_for(log: &Path, text: &str) {
    let start = Instant::now();
    while !std::fs::read_to_string(log).is_ok_and(|l| l.contains(text)) {
        assert!(start.elapsed() < Duration::from_secs(120), "`{text}` did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn watching_sees_a_fault_and_its_repair_and_ends_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let file = kernel(folder.path(), "rope");
    let log = folder.path().join("log");
    let child = Command::new(assert_cmd::cargo::cargo_bin("tapml"))
        .arg("check")
        .arg(&suite)
        .args(["--target", "emulator", "--op", "rope", "--watch", "--kernel"])
        .arg(format!("rope={}", file.display()))
        .args(["--json", "found.json"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    wait_for(&log, "the first prompt passes");
    wait_for(&log, "checked in");
    let report = folder.path().join("found.json");
    assert!(report.exists());
    let right = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, right.replace("b * cosine + a * sine", "b * cosine - a * sine")).unwrap();
    wait_for(&log, "the first prompt FAILS");
    std::fs::write(&file, "fn main( {").unwrap();
    wait_for(&log, "rope.wgsl:1");
    wait_for(&log, "nothing was checked");
    // A report of another kernel would not be true.
    let until = Instant::now() + Duration::from_secs(60);
    while report.exists() {
        assert!(Instant::now() < until, "the report stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}
