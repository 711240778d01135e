//! Tiny RWKV models with the vocabulary of the published ones.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use tapml::graph::Tensor;
use tapml::import::safetensors::{File, write};

/// Tokens of the published models; the vocabulary's largest id lies below.
const VOCAB: usize = 65536;
/// The file of the vocabulary.
pub const VOCABULARY: &str = "rwkv_vocab_v20230424.txt";

/// A golden checkpoint whose tokens repeat until there are as many as the vocabulary has: token `i` is what token
/// `i % tiny` was, and of equal ones the first is chosen. Gives the number of its tokens.
pub fn with_vocabulary(tiny: &Path, folder: &Path) -> usize {
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
