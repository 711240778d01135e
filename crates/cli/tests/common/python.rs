//! Python with the packages that agents of other runtimes need.

use std::path::Path;
use std::process::Command;

/// What agents with ONNX Runtime import.
pub const ONNX_RUNTIME: &[&str] =
    &["numpy", "websockets", "google.protobuf", "onnx", "onnxruntime", "ml_dtypes"];

/// The interpreter that `TAPML_AGENT_PYTHON` names, else `python3`.
pub fn python() -> Command {
    Command::new(std::env::var("TAPML_AGENT_PYTHON").unwrap_or_else(|_| "python3".into()))
}

/// Whether the interpreter has these packages; counts a skip of what would be tested if not.
pub fn has_packages(packages: &[&str], tested: &str) -> bool {
    let import = format!("import {}", packages.join(", "));
    let has = python().args(["-c", &import]).output().is_ok_and(|output| output.status.success());
    if !has {
        let reason = format!("TAPML_AGENT_PYTHON names no Python with {}", packages.join(", "));
        tapml_testing::skip(tested, &reason);
    }
    has
}

/// A folder with what a script writes there; `None`, and a skip, if Python lacks its packages.
pub fn made_by(script: &str, packages: &[&str], tested: &str) -> Option<tempfile::TempDir> {
    has_packages(packages, tested).then(|| {
        let folder = tempfile::tempdir().unwrap();
        let made = python().args(["-c", script]).arg(folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        folder
    })
}

/// The command, with agents that this interpreter runs.
pub fn tapml(folder: &Path) -> assert_cmd::Command {
    let mut command = super::tapml(folder);
    command.env("PYTHONPATH", tapml_testing::root().join("bindings/python/python"));
    if let Ok(python) = std::env::var("TAPML_AGENT_PYTHON") {
        command.env("TAPML_PYTHON", python);
    }
    command
}
