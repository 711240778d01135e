//! Pipes, devices and folders in the place of files: refused at once, by what they are.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod common;

use common::{carve_small, draft, tapml};
use std::path::Path;
use std::time::Duration;

fn pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Runs a command that must say at once that it wanted a regular file and found this.
fn refuses(folder: &Path, arguments: &[&str], found: &str) {
    let mut command = tapml(folder);
    let output = command.args(arguments).timeout(Duration::from_secs(60)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    let expected = format!("expected a regular file, found {found}");
    assert!(text.contains(&expected), "{arguments:?}: {text}");
}

#[test]
fn what_is_no_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (model, suite) = (draft(), carve_small(path).display().to_string());
    for name in ["pipe", "pipe.wgsl", "pipe.gguf", "token"] {
        pipe(&path.join(name));
    }
    let carve = |prompts| ["carve", &model, "--out", "a.suite", "--prompts", prompts].map(String::from);
    for (prompts, found) in [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder")] {
        refuses(path, &carve(prompts).each_ref().map(String::as_str), found);
    }
    refuses(path, &["check", &suite, "--target", "emulator", "--kernel", "rope=pipe.wgsl"], "a pipe");
    refuses(path, &["check", &suite, "--target", "emulator?tuning=/dev/zero"], "a device");
    refuses(path, &["inspect", "pipe.gguf"], "a pipe");
    refuses(path, &["eval", &model, "--quantize", "q4", "--text", "/dev/zero"], "a device");
    refuses(path, &["device", "serve", "--listen", "127.0.0.1:0", "--token-file", "token"], "a pipe");
}

#[test]
fn parts_of_a_model_and_of_a_suite_are_files() {
    for part in ["config.json", "tokenizer.json", "model.safetensors"] {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(draft()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != part {
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        pipe(&folder.path().join(part));
        refuses(folder.path(), &["generate", ".", "--target", "cpu", "--prompt", "a"], "a pipe");
    }
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    for part in ["tensors.bin", "suite.json"] {
        std::fs::remove_file(suite.join(part)).unwrap();
        pipe(&suite.join(part));
        let suite = suite.display().to_string();
        let mut command = tapml(folder.path());
        command.args(["check", &suite, "--target", "cpu"]).timeout(Duration::from_secs(60));
        command.assert().code(2);
    }
}
