//! What commands say about odd files: things to know, and files that are there and cannot be read.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, prompts, stderr, tapml};
use std::path::{Path, PathBuf};

/// A copy of a small golden model whose configuration is edited.
fn copy_model(folder: &Path, edit: impl Fn(String) -> String) -> PathBuf {
    let (tiny, copy) = (tapml_testing::golden("llama_tiny_plain"), folder.join("model"));
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(tiny.join("model.safetensors"), copy.join("model.safetensors")).unwrap();
    let config = std::fs::read_to_string(tiny.join("config.json")).unwrap();
    std::fs::write(copy.join("config.json"), edit(config)).unwrap();
    copy
}

#[test]
fn a_class_that_does_not_go_with_the_model_type_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let inspect = |model: &Path| {
        let mut command = tapml(folder.path());
        stderr(command.arg("inspect").arg(model), 0)
    };
    let odd = copy_model(folder.path(), |config| config.replace("LlamaForCausalLM", "AbacusForCausalLM"));
    let said = inspect(&odd);
    assert!(said.contains("`AbacusForCausalLM`") && said.contains("config.json"), "{said}");
    assert_eq!(inspect(&tapml_testing::golden("llama_tiny_plain")), "");
}

/// A link to itself stands for every file that is there and cannot be looked at, such as without permission.
#[cfg(unix)]
#[test]
fn what_cannot_be_looked_at_is_not_called_missing() {
    let folder = tempfile::tempdir().unwrap();
    let model = copy_model(folder.path(), |config| config);
    let generate = || {
        let mut command = tapml(folder.path());
        command.arg("generate").arg(&model).args(["--prompt", "a", "--target", "cpu"]);
        stderr(&mut command, 2)
    };
    assert!(generate().contains("tokenizer.json is missing"));
    for file in ["tokenizer.model", "tokenizer.json", "model.safetensors", "config.json"] {
        let _ = std::fs::remove_file(model.join(file));
        std::os::unix::fs::symlink(file, model.join(file)).unwrap();
        let error = generate();
        assert!(error.contains("could not look for") && error.contains(file), "{error}");
        assert!(!error.contains("missing") && !error.contains("there is no"), "{error}");
    }
}

#[test]
fn a_ledger_that_is_started_over_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = prompts(folder.path());
    let migrate = |arguments: &[&str]| {
        let mut command = tapml(folder.path());
        command.args(["migrate", &draft(), "--target", "emulator", "--steps", "1", "--ledger", "l"]);
        command.arg("--prompts").arg(&prompts).args(arguments);
        stderr(&mut command, 0)
    };
    assert!(!migrate(&[]).contains("starting over"));
    let file = folder.path().join("l/ledger.json");
    let mut ledger: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    ledger["version"] = 0.into();
    std::fs::write(&file, ledger.to_string()).unwrap();
    let said = migrate(&[]);
    assert!(said.contains("starting over: the ledger l is of version 0"), "{said}");
    let said = migrate(&["--no-fuse"]);
    assert!(said.contains("starting over: the ledger l is of another graph"), "{said}");
}
