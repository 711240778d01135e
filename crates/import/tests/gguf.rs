//! GGUF files against ggml's own Python package and Transformers, and what damaged and lying files are told.
//! `tools/goldens/gguf_files.py` made the golden files and says what is in them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tapml_graph::{DType, Symbols};
use tapml_import::gguf::{File, TensorKind};
use tapml_import::{Checkpoint, gguf, safetensors};
use tapml_reference::{self as reference, WeightCache, empty_states, run_graph};

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens")
}

/// Logits of every position of a text.
fn logits(checkpoint: &Checkpoint, ids: &[u32]) -> Vec<f32> {
    let cache = WeightCache::<f32>::new();
    let weights = |name: &str| cache.get_weight(checkpoint.model(), name);
    let inputs = HashMap::from([("ids".to_string(), reference::Value::ids(ids.to_vec()))]);
    let graph = checkpoint.graph();
    let states = empty_states(graph).unwrap();
    let run = run_graph(graph, &Symbols::np(ids.len() as u64, 0), &inputs, &weights, states, None).unwrap();
    run.output("logits").unwrap().as_float().unwrap().values().to_vec()
}

#[test]
fn blocks_are_dequantised_bit_for_bit() {
    let unpacked = tempfile::tempdir().unwrap();
    tapml_testing::unpack_archive("tests/goldens/gguf/blocks.tar.zst", unpacked.path());
    let golden = safetensors::File::open(&unpacked.path().join("blocks.safetensors")).unwrap();
    let types = golden.entries().iter().filter_map(|e| e.name.strip_suffix(".blocks")).collect::<Vec<_>>();
    assert_eq!(types.len(), 13);
    for name in types {
        let blocks = golden.tensor(&format!("{name}.blocks")).unwrap();
        let expected = golden.tensor(&format!("{name}.values")).unwrap();
        let kind = TensorKind::from_name(name).unwrap();
        let found = kind.values(blocks.bytes(), expected.shape().to_vec()).unwrap();
        for (i, (found, expected)) in found.to_f32().iter().zip(expected.to_f32().iter()).enumerate() {
            assert_eq!(found.to_bits(), expected.to_bits(), "{name}, element {i}: {found} for {expected}");
        }
    }
}

/// What files do not say, with the value that all published models have: key of `config.json`, value.
const UNSAID: &[(&str, &str, Value)] = &[
    ("gpt_neox_tiny_sequential", "hidden_act", Value::Null),
    ("qwen2_tiny", "use_sliding_window", Value::Bool(false)),
    ("smollm3_tiny", "no_rope_layers", Value::Null),
    ("smollm3_tiny", "no_rope_layer_interval", Value::Null),
    ("cohere2_tiny", "sliding_window_pattern", Value::Null),
    // The size of a head; see below.
    ("gemma2_tiny", "query_pre_attn_scalar", Value::Null),
];

/// The checkpoint that a file was made from, with what files do not say set to what they mean.
fn checkpoint(name: &str) -> Checkpoint {
    let folder = tapml_testing::golden(name);
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    for (_, key, value) in UNSAID.iter().filter(|(model, ..)| *model == name) {
        let value = if *key == "query_pre_attn_scalar" { config["head_dim"].clone() } else { value.clone() };
        config.insert(key.to_string(), value);
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), Value::Object(config).to_string()).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap()) {
        if entry.file_name() != "config.json" && entry.file_name() != "golden.safetensors" {
            std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
    }
    Checkpoint::open(dir.path()).unwrap()
}

/// A folder with `quantized.gguf` and `quantized.safetensors`.
fn unpack_quantized() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    tapml_testing::unpack_archive("tests/goldens/gguf/quantized.tar.zst", folder.path());
    folder
}

/// Weights must be equal, except that a norm which is stored as 1 + w has lost the last bits of w; so must logits.
#[test]
fn a_file_computes_what_its_checkpoint_computes() {
    let mut checked = 0;
    let converted = tempfile::tempdir().unwrap();
    for path in tapml_testing::write_golden_gguf(converted.path()) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(gguf::is_gguf(&path) && goldens().join(name).join("config.json").exists(), "{name}");
        let (file, folder) = (Checkpoint::open(&path).unwrap(), checkpoint(name));
        assert_eq!(
            (file.model_type(), file.vocab(), file.context(), file.bos(), file.eos()),
            (folder.model_type(), folder.vocab(), folder.context(), folder.bos(), folder.eos()),
            "{name}"
        );
        assert!(file.unused_tensors().is_empty(), "{name}: {:?}", file.unused_tensors());
        let rounded = name.starts_with("gemma") || name.starts_with("nemotron");
        for (_, value) in folder.graph().weights() {
            let [ours, theirs] = [&file, &folder].map(|c| c.model().weight(&value.name).unwrap().to_f64());
            let slack = if rounded && value.name.contains("norm") { 1.2e-7 } else { 0.0 };
            let equal = ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() <= slack);
            assert!(equal && ours.len() == theirs.len(), "{name}: `{}` differs", value.name);
        }
        let ids: Vec<u32> = (0..40).map(|i| i * 7 % file.vocab() as u32).collect();
        let (ours, theirs) = (logits(&file, &ids), logits(&folder, &ids));
        // Factors of positions are stored in f32.
        let slack = if rounded || name.ends_with("longrope") { 2e-5 } else { 0.0 };
        let worst = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(ours.len() == theirs.len() && worst <= slack, "{name}: a logit differs by {worst}");
        checked += 1;
    }
    assert!(checked >= 20, "only {checked} files");
}

#[test]
fn quantised_weights_compute_what_transformers_computes_with_their_values() {
    let folder = unpack_quantized();
    let checkpoint = Checkpoint::open(folder.path().join("quantized.gguf")).unwrap();
    let golden = safetensors::File::open(&folder.path().join("quantized.safetensors")).unwrap();
    assert!(checkpoint.unused_tensors().is_empty(), "{:?}", checkpoint.unused_tensors());
    for prompt in 0..3 {
        let ids = golden.tensor(&format!("p{prompt}.input_ids")).unwrap().to_f64();
        let ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
        let expected = golden.tensor(&format!("p{prompt}.logits")).unwrap().to_f64();
        let found = logits(&checkpoint, &ids);
        let worst = found.iter().zip(&expected).map(|(f, e)| (f64::from(*f) - e).abs()).fold(0.0, f64::max);
        assert!(found.len() == expected.len() && worst < 2e-4, "prompt {prompt}: a logit differs by {worst}");
    }
}

#[test]
fn values_are_mapped_where_they_are_stored_as_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    tapml_testing::write_golden_gguf(folder.path());
    let file = File::open(&folder.path().join("phi_tiny.gguf")).unwrap();
    let tensor = file.tensor("token_embd.weight").unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (DType::F16, &[83, 40][..]));
    let twice = file.tensor("token_embd.weight").unwrap();
    assert_eq!(tensor.bytes().as_ptr(), twice.bytes().as_ptr(), "a mapped tensor is not copied");
    assert!(file.tensor("other").unwrap_err().to_string().contains("there is no tensor `other`"));
    assert_eq!(file.metadata().text("general.architecture").unwrap(), Some("phi2"));
    assert_eq!(file.metadata().whole("phi2.block_count").unwrap(), Some(2));
    assert!(
        file.metadata()
            .text("phi2.block_count")
            .unwrap_err()
            .to_string()
            .contains("expected a text, found 2")
    );
}
