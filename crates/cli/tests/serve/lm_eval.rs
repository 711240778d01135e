//! lm-eval through a server, against what its own model `hf` finds with the same checkpoints.

use super::process::ServeProcess;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fails unless every request of the tasks is answered as `hf` answers it.
fn compare(model: &Path, python: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let name = model.to_str().unwrap();
    let server = ServeProcess::start_model(name, folder.path(), &["--target", "cpu"]);
    let script = tapml_testing::root().join("tools/lm_eval_tasks.py");
    let mut command = Command::new(python);
    command.current_dir(folder.path()).env("HF_HOME", folder.path());
    let output =
        command.arg(script).args(["completions", name, server.report["url"].as_str().unwrap()]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("ok "), "{text}{errors}");
}

/// The Python of the virtual environment that `TAPML_CLIENTS` names, if it has lm-eval.
fn python_with_lm_eval() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("TAPML_CLIENTS").unwrap_or_default()).join("bin/python");
    let import = ["-c", "import lm_eval, aiohttp, tenacity, transformers"];
    let has = Command::new(&python).args(import).output().is_ok_and(|output| output.status.success());
    if !has {
        tapml_testing::skip(
            "lm-eval",
            "TAPML_CLIENTS names no virtual environment with lm-eval and transformers",
        );
    }
    has.then_some(python)
}

#[test]
fn lm_eval_finds_through_the_server_what_transformers_gives() {
    let Some(python) = python_with_lm_eval() else { return };
    compare(&tapml_testing::model("llama"), &python);
    for name in ["gemma2", "gpt_neox"] {
        if let Some(model) = tapml_testing::extra_model(name) {
            compare(&model, &python);
        }
    }
}
