//! Text from an RWKV model with its World vocabulary: a folder with `rwkv_vocab_v20230424.txt` needs nothing else.
#![allow(clippy::unwrap_used)]

mod common;

use common::{json, stderr, tapml};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use tapml::graph::Tensor;
use tapml::import::safetensors::{File, write};

/// Tokens of the published models; the vocabulary's largest id lies below.
const VOCAB: usize = 65536;
/// A text of which the authors' ids are known.
const CHINESE: &str = "你好，世界！大语言模型可以写诗、写代码。鸟鸣山更幽。";
const VOCABULARY: &str = "rwkv_vocab_v20230424.txt";

/// A golden checkpoint whose tokens repeat until there are as many as the vocabulary has: token `i` is what token
/// `i % tiny` was, and of equal ones the first is chosen. Gives the number of its tokens.
fn with_vocabulary(tiny: &Path, folder: &Path) -> usize {
    let goldens = tapml_testing::root().join("tests/goldens");
    std::fs::copy(goldens.join("rwkv_world").join(VOCABULARY), folder.join(VOCABULARY)).unwrap();
    let config = std::fs::read_to_string(tiny.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    let tokens = config["vocab_size"].as_u64().unwrap() as usize;
    config["vocab_size"] = VOCAB.into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let file = File::open(&tiny.join("model.safetensors")).unwrap();
    let tensors = file.entries().iter().map(|entry| {
        let tensor = file.load(entry).unwrap();
        let per_token = entry.name.contains("embeddings") || entry.name.contains("head");
        (entry.name.as_str(), if per_token { repeat_rows(&tensor) } else { tensor })
    });
    write(&folder.join("model.safetensors"), &tensors.collect::<Vec<_>>(), &BTreeMap::new()).unwrap();
    tokens
}

/// The rows again and again, [`VOCAB`] of them.
fn repeat_rows(tensor: &Tensor) -> Tensor {
    let (rows, width) = (tensor.shape()[0], tensor.shape()[1]);
    let values = tensor.to_f32();
    let repeated = (0..VOCAB).flat_map(|row| &values[row % rows * width..][..width]).copied();
    Tensor::from_f32(vec![VOCAB, width], repeated.collect()).unwrap()
}

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
