//! A kernel that never ends: the emulator stops it and names the line, and Ctrl-C is heard while it runs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, changed_kernel, draft, json, prompts, start_diagnose, stops, tapml};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A `rope` that goes round for ever.
fn endless(folder: &Path) -> String {
    changed_kernel(folder, "rope", ["i < 4u; i++", "i < 4u; i += 0u"])
}

#[test]
fn a_kernel_that_never_ends_is_a_fault_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, rope) = (folder.path(), carve_small(folder.path()), endless(folder.path()));
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
fn a_check_names_it_for_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, rope) = (folder.path(), carve_small(folder.path()), endless(folder.path()));
    let mut check = tapml(path);
    check.arg("check").arg(&suite).args([
        "--target",
        "emulator?timeout=1",
        "--op",
        "rope",
        "--kernel",
        &rope,
    ]);
    let report = json(check.args(["--junit", "found.xml"]), 1);
    let failures = report["ops"][0]["failures"].as_array().unwrap();
    assert!(!failures.is_empty() && failures.iter().all(|f| f["criterion"] == "time limit"), "{report:#}");
    let xml = std::fs::read_to_string(path.join("found.xml")).unwrap();
    assert!(xml.contains("time limit") && !xml.contains("invalid input"), "{xml}");
}

#[test]
fn the_first_request_to_stop_ends_a_diagnosis_within_such_a_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, rope) = (folder.path(), carve_small(folder.path()), endless(folder.path()));
    let arguments = ["--target", "emulator?timeout=600", "--operators", "--kernel", &rope];
    stopped_when_busy(start_diagnose(path, &arguments, &suite));
}

/// Asks a command to stop once it has worked for so long that it is within the kernel that never ends.
fn stopped_when_busy(child: Child) {
    stopped_after(child, 600);
}

/// Asks a command to stop once it has used so many hundredths of a second of a processor.
fn stopped_after(mut child: Child, hundredths: u64) {
    let id = child.id();
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let ticks: Vec<u64> = stat.split_whitespace().skip(13).take(2).map(|t| t.parse().unwrap()).collect();
        ticks.iter().sum::<u64>()
    };
    while used() < hundredths {
        assert!(child.try_wait().unwrap().is_none(), "it ends by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    stops(child, Duration::from_millis(3500));
}

fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
    command.args(arguments).current_dir(folder).env("TMPDIR", folder);
    command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_check_that_is_stopped_reports_what_it_has_found() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, rope) = (folder.path(), carve_small(folder.path()), endless(folder.path()));
    let suite = suite.display().to_string();
    let check =
        ["check", &suite, "--target", "emulator?timeout=600", "--kernel", &rope, "--json", "found.json"];
    for more in [&["--junit", "found.xml"][..], &["--fleet"]] {
        stopped_when_busy(start(path, &[&check[..], more].concat()));
        let text = std::fs::read_to_string(path.join("found.json")).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(found["stopped"] == true && found["cases"].as_u64() > Some(0), "{found}");
        std::fs::remove_file(path.join("found.json")).unwrap();
    }
    let xml = std::fs::read_to_string(path.join("found.xml")).unwrap();
    assert!(xml.contains("rms_norm") && !xml.contains("<failure"), "{xml}");
}

#[test]
fn a_migration_that_is_stopped_keeps_its_ledger_and_nothing_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, rope) = (folder.path(), endless(folder.path()));
    let prompts = prompts(path).display().to_string();
    let migrate =
        ["migrate", &draft(), "--target", "emulator?timeout=600", "--kernel", &rope, "--steps", "1"];
    let more = ["--prompts", &prompts, "--ledger", "kept"];
    stopped_when_busy(start(path, &[&migrate[..], &more].concat()));
    let text = std::fs::read_to_string(path.join("kept/ledger.json")).unwrap();
    let ledger: serde_json::Value = serde_json::from_str(&text).unwrap();
    let accepted = ledger["ops"].as_array().unwrap().iter().filter(|op| op["state"] == "accepted").count();
    assert!(accepted > 0, "{ledger:#}");
    let mut names: Vec<String> = std::fs::read_dir(path.join("kept"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["ledger.json", "suite"]);
}

#[test]
fn every_other_command_that_is_stopped_ends_in_order_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = (folder.path(), draft());
    let found = |name: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(path.join(name)).unwrap()).unwrap()
    };
    let text = ["--text", "text.txt", "--tokens", "100000", "--window", "32", "--json", "eval.json"];
    std::fs::write(path.join("text.txt"), "Once upon a time there was an old man. ".repeat(4000)).unwrap();
    stopped_after(start(path, &[&["eval", &model], &text[..]].concat()), 300);
    let eval = found("eval.json");
    assert!(eval["stopped"] == true && eval["tokens"].as_u64() > Some(0), "{eval}");
    let ids = (0..500).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    let slow = ["--ids", &ids, "--target", "emulator?check=all"];
    stopped_after(
        start(path, &[&["logits", &model, "--out", "logits.safetensors"], &slow[..]].concat()),
        100,
    );
    let many = ["--ids", "1,2,3", "--max-tokens", "500", "--target", "emulator?check=all", "--ignore-eos"];
    stopped_after(start(path, &[&["generate", &model], &many[..]].concat()), 200);
    let runs = ["--target", "emulator", "--prefill", "0", "--tokens", "4", "--runs", "1000000"];
    stopped_after(
        start(path, &[&["bench", "decode", &model, "--json", "bench.json"], &runs[..]].concat()),
        400,
    );
    let bench = found("bench.json");
    assert!(bench["stopped"] == true && !bench["runs"].as_array().unwrap().is_empty(), "{bench}");
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/data/models.tsv");
    stopped_after(start(path, &["compile", "--dry-run", "--list", list, "--json", "compiled.json"]), 50);
    let mut left: Vec<_> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["bench.json", "eval.json", "text.txt"]);
}
