//! Models of a stranger: a template or tokenizer beyond a limit ends `generate` with 2, by the file's name.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, stderr, tapml};
use std::path::Path;

/// A copy of the small model with another file.
fn generates(name: &str, text: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(draft()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    std::fs::write(folder.path().join(name), text).unwrap();
    let mut command = tapml(folder.path());
    let message = stderr(command.args(["generate", ".", "--target", "cpu", "--prompt", "Once"]), 2);
    for words in [name].iter().chain(expected) {
        assert!(message.contains(words), "{name}: {message}");
    }
    assert!(!message.contains("panicked at"), "{message}");
}

#[test]
fn templates_of_a_stranger_are_refused_by_name() {
    let doubling =
        "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
    for (text, limit) in [
        (format!("{{{{ {}1 }}}}", "-".repeat(20_000)), "nests more than 400"),
        ("{% set n = namespace() %}{% set n.n = n %}{{ n|tojson }}".into(), "stores a namespace"),
        (doubling.into(), "makes a text or a list of more than 8 MiB"),
    ] {
        generates("chat_template.jinja", &text, &[limit, "take the one that came with the weights"]);
    }
}

#[test]
fn tokenizers_of_a_stranger_are_refused_by_name() {
    let path = Path::new(&draft()).join("tokenizer.json");
    let mut file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let step = serde_json::json!({"type": "Replace", "pattern": {"String": "e"}, "content": "ee"});
    file["normalizer"] = serde_json::json!({"type": "Sequence", "normalizers": vec![step; 60]});
    generates("tokenizer.json", &file.to_string(), &["makes the text too long", "came with the weights"]);
    file["normalizer"] = serde_json::Value::Null;
    file["pre_tokenizer"] = serde_json::json!({"type": "FixedLength", "length": 0});
    generates("tokenizer.json", &file.to_string(), &["the file must be damaged"]);
    generates("tokenizer.json", &"[".repeat(100_000), &["is no valid tokenizer", "came with the weights"]);
}
