//! Text from an RWKV model with its World vocabulary: a folder with `rwkv_vocab_v20230424.txt` needs nothing else.
#![allow(clippy::unwrap_used)]

mod common;

use common::world::{VOCABULARY, with_vocabulary};
use common::{json, stderr, tapml};
use serde_json::Value;
use std::path::Path;

/// A text of which the authors' ids are known.
const CHINESE: &str = "你好，世界！大语言模型可以写诗、写代码。鸟鸣山更幽。";

#[test]
fn rwkv_models_generate_text_with_the_vocabulary_beside_them() {
    let goldens = tapml_testing::root().join("tests/goldens");
    let texts = std::fs::read(goldens.join("rwkv_world/ids.json")).unwrap();
    let texts: Value = serde_json::from_slice(&texts).unwrap();
    let golden = texts["texts"].as_array().unwrap().iter().find(|t| t["text"] == CHINESE).unwrap();
    for name in ["rwkv5_tiny", "rwkv6_tiny", "rwkv7_tiny"] {
        let folder = tempfile::tempdir().unwrap();
        let (tiny, model) = (tapml_testing::golden(name), folder.path().join("model"));
        std::fs::create_dir(&model).unwrap();
        let tokens = with_vocabulary(&tiny, &model);
        let generate = |model: &Path, prompt: [&str; 2]| {
            let mut command = tapml(folder.path());
            command.arg("generate").arg(model).args(prompt);
            command.args(["--max-tokens", "6", "--ignore-eos", "--target", "cpu"]);
            json(&mut command, 0)
        };
        let text = generate(&model, ["--prompt", golden["text"].as_str().unwrap()]);
        assert_eq!(text["prompt_ids"], golden["ids"]);
        let prompt: Vec<usize> = serde_json::from_value(text["prompt_ids"].clone()).unwrap();
        let folded: Vec<String> = prompt.iter().map(|id| (id % tokens).to_string()).collect();
        let ids = generate(&tiny, ["--ids", &folded.join(",")]);
        assert_eq!(text["ids"], ids["ids"], "{name}");
        // The tokens 1 to 128 are the bytes 0 to 127.
        let ids: Vec<u8> = serde_json::from_value(text["ids"].clone()).unwrap();
        let expected: String = ids.iter().filter(|&&id| id > 0).map(|id| char::from(id - 1)).collect();
        assert_eq!(text["text"], expected, "{name}");
        assert!(!expected.is_empty(), "{name}");
    }
}

#[test]
fn a_broken_vocabulary_is_told_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    with_vocabulary(&tapml_testing::golden("rwkv6_tiny"), &model);
    std::fs::write(model.join(VOCABULARY), "1 '\\x00' 1\n2 '\\x01' 7\n").unwrap();
    let mut command = tapml(folder.path());
    command.arg("generate").arg(&model).args(["--prompt", "a", "--target", "cpu"]);
    let error = stderr(&mut command, 2);
    assert!(error.contains(VOCABULARY) && error.contains("line 2: expected the count 1"), "{error}");
}
