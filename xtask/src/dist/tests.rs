//! Archives of a program that answers as the command does.
#![cfg(unix)]

use super::*;
use std::os::unix::fs::PermissionsExt;

/// A program that answers what an archive asks of the command; it generates `text`.
fn program(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("tapml");
    let version = env!("CARGO_PKG_VERSION");
    let script = format!(
        "#!/bin/sh\ncase $1 in\n--version) echo tapml {version};;\ncompletions) echo for $2;;\n\
         man) mkdir -p $3; echo page > $3/tapml.1;;\ngenerate) [ -f $2/config.json ] || exit 2; printf '{text}';;\n\
         doctor) ;;\n*) exit 2;;\nesac\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn an_archive_holds_what_its_user_needs_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let archive = pack(&crate::root(), &program(folder.path(), "text"), folder.path()).unwrap();
    check(&archive).unwrap();
    let file = std::fs::File::open(&archive).unwrap();
    let mut tar = tar::Archive::new(GzDecoder::new(file));
    let entries = tar.entries().unwrap().map(|entry| entry.unwrap());
    let modes: BTreeMap<String, u32> = entries
        .map(|entry| {
            let path = entry.path().unwrap().display().to_string();
            (path.split_once('/').unwrap().1.to_string(), entry.header().mode().unwrap())
        })
        .collect();
    assert_eq!(modes["bin/tapml"], 0o755);
    for path in [
        "LICENSE-MIT",
        "THIRD-PARTY-LICENSES.txt",
        "share/bash-completion/completions/tapml",
        "share/man/man1/tapml.1",
        "share/tapml/models/LICENSES.md",
        "share/tapml/models/llama/model-00001-of-00002.safetensors",
        "share/tapml/models/llama/model-00002-of-00002.safetensors.zst",
        "share/tapml/models/llama/tokenizer.json",
        SUMS,
    ] {
        assert_eq!(modes.get(path), Some(&0o644), "{path} of {modes:?}");
    }
    let sum_file = std::fs::read_to_string(format!("{}.sha256", archive.display())).unwrap();
    assert!(sum_file.starts_with(&sum(&std::fs::read(&archive).unwrap())));
}

#[test]
fn an_archive_of_a_command_that_does_not_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = pack(&crate::root(), &program(folder.path(), ""), folder.path()).unwrap();
    assert!(check(&archive).unwrap_err().to_string().contains("generates nothing"));
}

#[test]
fn licences_name_the_crates_of_the_command_and_no_others() {
    let text = licences::collect(&crate::root()).unwrap();
    let list = text.split("-----").next().unwrap();
    assert!(list.lines().any(|line| line.starts_with("clap 4.") && line.contains("MIT")), "{list}");
    assert!(list.lines().any(|line| line.starts_with("wgpu ")), "{list}");
    for other in ["tapml-graph ", "proptest ", "assert_cmd "] {
        assert!(!list.lines().any(|line| line.starts_with(other)), "{other}");
    }
    assert!(text.contains("Permission is hereby granted, free of charge"));
}
