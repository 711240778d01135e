//! `tapml doctor`: what is here, what is missing, and the exit codes of both.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use common::{json, python, stderr, tapml};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The parts of a platform.
fn parts<'a>(report: &'a Value, platform: &str) -> Vec<&'a Value> {
    let all = report["parts"].as_array().unwrap().iter();
    all.filter(|part| part["platform"].as_str().unwrap().split(':').next() == Some(platform)).collect()
}

/// A program of this name in the folder.
fn write_program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn every_platform_is_ready_or_missing_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tapml(folder.path());
    command.env("TAPML_PYTHON", "/nowhere/python").args(["doctor", "--json", "-"]);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    // A device of this machine may be broken.
    let is_broken = |part: &Value| part["state"] == "broken";
    let code = i32::from(report["parts"].as_array().unwrap().iter().any(is_broken));
    assert_eq!(output.status.code(), Some(code), "{report}");
    for word in ["cpu", "emulator"] {
        assert_eq!(parts(&report, word)[0]["state"], "ready", "{report}");
    }
    for word in ::tapml::exec::WORDS.iter().chain(&::tapml::exec::RUNTIMES) {
        let parts = parts(&report, word);
        assert!(!parts.is_empty(), "{word} is not in {report}");
        for part in parts.iter().filter(|part| part["state"] == "missing") {
            assert!(part["reason"].is_string() && part["hint"].is_string(), "{part}");
        }
    }
    let python = parts(&report, "python")[0];
    assert_eq!(python["state"], "missing");
    assert!(python["reason"].as_str().unwrap().contains("/nowhere/python"), "{python}");
    assert!(python["hint"].as_str().unwrap().contains("pip install 'tapml[agents]'"), "{python}");
}

#[test]
fn platforms_that_are_named_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let report = json(tapml(folder.path()).args(["doctor", "cpu", "emulator"]), 0);
    assert_eq!(report["parts"].as_array().unwrap().len(), 2, "{report}");
    let other = if cfg!(target_os = "macos") { "dx12" } else { "metal" };
    let output = tapml(folder.path()).args(["doctor", "cpu", other]).assert().code(1).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("Missing\n  {other}: ")), "{text}");
    let wrong = stderr(tapml(folder.path()).args(["doctor", "vulcan"]), 2);
    assert!(wrong.contains("unknown platform `vulcan`"), "{wrong}");
    let wrong = stderr(tapml(folder.path()).args(["doctor", "vulkan:1"]), 2);
    assert!(wrong.contains("expected a platform of this machine"), "{wrong}");
}

#[test]
fn a_browser_on_the_path_is_found_with_its_version() {
    let folder = tempfile::tempdir().unwrap();
    write_program(folder.path(), "chromium", "echo Chromium 150.0.1");
    // A program that never ends is no browser, and is not waited for.
    write_program(folder.path(), "google-chrome", "exec sleep 1000");
    let mut command = tapml(folder.path());
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let report = json(command.env("PATH", path).args(["doctor", "webgpu"]), 0);
    let browser = parts(&report, "webgpu")[0];
    assert_eq!((&browser["state"], &browser["name"]), (&"installed".into(), &"Chromium 150.0.1".into()));
}

#[test]
fn a_python_that_lies_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    write_program(folder.path(), "python", "echo nonsense");
    let mut command = tapml(folder.path());
    let report = json(command.env("TAPML_PYTHON", folder.path().join("python")).args(["doctor", "ort"]), 1);
    let reason = parts(&report, "python")[0]["reason"].as_str().unwrap();
    assert!(reason.contains("list of runtimes is not understood"), "{reason}");
}

#[test]
fn runtimes_are_found_with_versions_and_started_when_they_are_named() {
    if !python::has_packages(python::ONNX_RUNTIME, "doctor with ONNX Runtime") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = json(python::tapml(folder.path()).arg("doctor"), 0);
    let ort = parts(&report, "ort")[0];
    assert_eq!(ort["state"], "installed");
    let version = ort["version"].as_str().unwrap();
    assert!(version.split('.').count() > 1, "{ort}");
    assert_eq!(parts(&report, "python")[0]["state"], "ready");
    for runtime in ::tapml::exec::RUNTIMES {
        assert_ne!(parts(&report, runtime)[0]["reason"], "the package in Python is of another version");
    }

    let report = json(python::tapml(folder.path()).args(["doctor", "ort"]), 0);
    let ort = parts(&report, "ort")[0];
    assert_eq!(ort["state"], "ready");
    assert_eq!(ort["version"].as_str(), Some(version));
    assert!(ort["name"].as_str().unwrap().contains(version), "{ort}");
}
