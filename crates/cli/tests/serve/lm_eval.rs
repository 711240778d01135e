//! lm-eval through a server, against what its own model `hf` finds with the same checkpoints.

use super::process::ServeProcess;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fails unless every request of the tasks is answered as `hf` answers it, whichever of the models a server has.
fn compare(models: &[PathBuf], python: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let serve = |model: &PathBuf| {
        ServeProcess::start_model(model.to_str().unwrap(), folder.path(), &["--target", "cpu"])
    };
    let servers: Vec<ServeProcess> = models.iter().map(serve).collect();
    let mut command = Command::new(python);
    command.arg(tapml_testing::root().join("tools/lm_eval_tasks.py")).arg("completions");
    for (model, server) in models.iter().zip(&servers) {
        command.arg(model).arg(server.report["url"].as_str().unwrap());
    }
    let output = command.current_dir(folder.path()).env("HF_HOME", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let right = text.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(output.status.success() && right == models.len(), "{text}{errors}");
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
    let extra = ["gemma2", "gpt_neox"].into_iter().filter_map(tapml_testing::extra_model);
    let models: Vec<PathBuf> = std::iter::once(tapml_testing::model("llama")).chain(extra).collect();
    compare(&models, &python);
}
