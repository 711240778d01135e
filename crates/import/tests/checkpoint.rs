//! Opening checkpoint folders: what is read from a good one, and what each bad one is told.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tapml_graph::{DType, Error, ErrorKind, Symbols, Tensor};
use tapml_import::testing::TinyLlama;
use tapml_import::{Checkpoint, ImportOptions, LogitRows};
use tempfile::TempDir;

fn make_checkpoint(tiny: &TinyLlama) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    tiny.write(dir.path()).unwrap();
    dir
}

fn open(tiny: &TinyLlama) -> Result<Checkpoint, Error> {
    Checkpoint::open(make_checkpoint(tiny).path())
}

fn refusal(dir: &Path) -> Error {
    Checkpoint::open(dir).expect_err("this checkpoint must be refused")
}

/// The checkpoint with one key of `config.json` set must be refused with a message that names file, key and `expected`.
fn refused_config(key: &str, value: serde_json::Value, expected: &str) -> Error {
    let error = open(&TinyLlama { extra: json!({key: value}), ..TinyLlama::default() }).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("config.json") && text.contains(key) && text.contains(expected), "{text}");
    error
}

#[test]
fn a_good_checkpoint_tells_its_facts() {
    let checkpoint =
        open(&TinyLlama { extra: json!({"eos_token_id": [1, 3]}), ..TinyLlama::default() }).unwrap();
    assert_eq!((checkpoint.model_type(), checkpoint.vocab(), checkpoint.context()), ("llama", 50, 64));
    assert_eq!((checkpoint.bos(), checkpoint.eos()), (Some(0), &[1, 3][..]));
    assert!(checkpoint.unused_tensors().is_empty());
    let graph = checkpoint.graph();
    let states: Vec<&str> = graph.states().iter().map(|s| s.name.as_str()).collect();
    let expected: Vec<String> =
        (0..2).flat_map(|l| ["k", "v"].map(|s| format!("model.layers.{l}.self_attn.{s}"))).collect();
    assert_eq!(states, expected);
    for node in
        ["self_attn.q_proj", "self_attn.rope_q", "self_attn.k_cache", "self_attn.attention", "add_attention"]
    {
        assert!(graph.find_node(&format!("model.layers.1.{node}")).is_some(), "{node}");
    }
    let hidden = checkpoint.hidden_values();
    assert_eq!(hidden.len(), 3);
    for name in &hidden {
        let value = graph.find_value(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(graph.value(value).ty.to_string(), "f32[n,24]");
    }
    let logits = &graph.outputs()[0];
    assert_eq!(
        (logits.name.as_str(), graph.value(logits.value).ty.to_string()),
        ("logits", "f32[n,50]".into())
    );
}

#[test]
fn options_change_activation_rows_and_context() {
    let dir = make_checkpoint(&TinyLlama::default());
    let options = ImportOptions {
        activation: DType::F16,
        logits: LogitRows::Last,
        max_context: Some(10),
        ..Default::default()
    };
    let checkpoint = Checkpoint::open_with(dir.path(), &options).unwrap();
    let graph = checkpoint.graph();
    assert_eq!(graph.value(graph.outputs()[0].value).ty.to_string(), "f32[1,50]");
    assert!(graph.states().iter().all(|s| graph.value(s.input).ty.to_string() == "f16[p,12]"));
    assert_eq!(checkpoint.context(), 10);
    let more = ImportOptions { max_context: Some(1000), ..Default::default() };
    assert_eq!(Checkpoint::open_with(dir.path(), &more).unwrap().context(), 64);
    for bad in [
        ImportOptions { max_context: Some(0), ..Default::default() },
        ImportOptions { activation: DType::I32, ..Default::default() },
    ] {
        assert!(Checkpoint::open_with(dir.path(), &bad).is_err());
    }
}

#[test]
fn every_variant_has_exactly_the_weights_of_the_checkpoint() {
    for (tied, bias, shards, dtype) in
        [(true, false, 1, DType::BF16), (false, true, 3, DType::F16), (false, false, 2, DType::F32)]
    {
        let tiny = TinyLlama { tied, bias, shards, dtype, head_dim: 8, ..TinyLlama::default() };
        let checkpoint = open(&tiny).unwrap();
        let stored = tiny.tensors().unwrap();
        assert_eq!(checkpoint.graph().weights().count(), stored.len());
        for (name, tensor) in stored {
            let loaded = checkpoint.model().weight(&name).unwrap();
            assert_eq!((loaded.dtype(), loaded.shape()), (dtype, tensor.shape()), "{name}");
            assert_eq!(&loaded.bytes()[..], &tensor.bytes()[..], "{name}");
        }
    }
}

#[test]
fn the_hash_depends_on_weights_not_on_files() {
    let base = TinyLlama::default();
    let whole = open(&base).unwrap();
    let cut = open(&TinyLlama { shards: 4, ..base.clone() }).unwrap();
    let other = open(&TinyLlama { seed: 2, ..base }).unwrap();
    assert_eq!(whole.weights_hash().len(), 64);
    assert_eq!(whole.weights_hash(), cut.weights_hash());
    assert_ne!(whole.weights_hash(), other.weights_hash());
}

/// Puts compressed files in the place of a folder's weights; gives their paths.
fn compress_weights(dir: &Path) -> Vec<PathBuf> {
    let files = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let weights = files.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"));
    let compress = |path: PathBuf| {
        let compressed = path.with_extension("safetensors.zst");
        std::fs::write(&compressed, tapml_testing::pack(&std::fs::read(&path).unwrap())).unwrap();
        std::fs::remove_file(path).unwrap();
        compressed
    };
    weights.map(compress).collect()
}

#[test]
fn compressed_weight_files_are_read_as_plain_ones() {
    for shards in [1, 3] {
        let dir = make_checkpoint(&TinyLlama { shards, ..TinyLlama::default() });
        let plain = Checkpoint::open(dir.path()).unwrap().weights_hash().to_string();
        let files = compress_weights(dir.path());
        assert_eq!(files.len(), shards);
        assert_eq!(Checkpoint::open(dir.path()).unwrap().weights_hash(), plain);
        // A plain file stands before a compressed one.
        let empty = files[0].with_extension("");
        std::fs::write(&empty, "").unwrap();
        assert!(refusal(dir.path()).to_string().contains("the file has 0 bytes"));
        std::fs::remove_file(empty).unwrap();
        let whole = std::fs::read(&files[0]).unwrap();
        std::fs::write(&files[0], &whole[..whole.len() / 2]).unwrap();
        let error = refusal(dir.path()).to_string();
        let name = files[0].file_name().unwrap().to_str().unwrap();
        assert!(error.contains(name) && error.contains("`zstd` wrote"), "{error}");
    }
}

#[test]
fn a_path_that_is_no_model_is_told_what_a_model_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.safetensors");
    std::fs::write(&file, b"x").unwrap();
    let onnx = dir.path().join("model.onnx");
    std::fs::write(&onnx, b"x").unwrap();
    for (path, expected) in [
        (dir.path().join("nowhere"), "no such file or folder"),
        (dir.path().to_path_buf(), "there is no config.json"),
        (file, "expected the folder that holds this file"),
        (onnx, "onnx files are not supported"),
    ] {
        let error = refusal(&path);
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.hint().unwrap().contains("Hugging Face layout"), "{error}");
    }
}

#[test]
fn config_errors_name_file_key_expected_and_found() {
    refused_config("hidden_size", json!(null), "is missing");
    refused_config("hidden_size", json!("wide"), "expected a whole number from 1 to 131072, found \"wide\"");
    refused_config("hidden_size", json!(-4), "found -4");
    refused_config("num_hidden_layers", json!(4_000_000_000u64), "found 4000000000");
    refused_config("num_hidden_layers", json!(1e300), "found 1e+300");
    refused_config("vocab_size", json!(0), "found 0");
    refused_config(
        "num_key_value_heads",
        json!(3),
        "expected a divisor of `num_attention_heads`, which is 4",
    );
    refused_config("head_dim", json!(7), "even");
    refused_config("tie_word_embeddings", json!(1), "expected true or false, found 1");
    refused_config("rms_norm_eps", json!([]), "expected a number");
    refused_config("eos_token_id", json!(50), "expected a token id below 50");
    refused_config("rope_scaling", json!("big"), "expected an object");
    let unsupported = [
        ("model_type", json!("mamba9"), "architecture `mamba9` is not supported"),
        ("hidden_act", json!("snake"), "activation `snake`"),
        ("quantization_config", json!({"bits": 4}), "quantised"),
        ("rope_scaling", json!({"rope_type": "ntk", "factor": 2.0}), "`ntk`"),
    ];
    for (key, value, expected) in unsupported {
        let error = refused_config(key, value, expected);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.hint().is_some(), "{error}");
    }
    let unknown = refused_config("model_type", json!("mamba9"), "not supported");
    assert!(unknown.hint().unwrap().contains("llama"));
}

#[test]
fn a_config_that_is_no_json_object() {
    let dir = make_checkpoint(&TinyLlama::default());
    for (text, expected) in
        [("{\"a\":", "no valid JSON"), ("[1]", "expected a JSON object, found [1]"), ("", "EOF")]
    {
        std::fs::write(dir.path().join("config.json"), text).unwrap();
        let error = refusal(dir.path()).to_string();
        assert!(error.contains("config.json") && error.contains(expected), "{error}");
    }
    let deep = "[".repeat(100_000);
    std::fs::write(dir.path().join("config.json"), deep).unwrap();
    assert!(refusal(dir.path()).to_string().contains("recursion limit"));
}

#[test]
fn a_configuration_of_another_model_lists_tensors_with_expected_and_found() {
    let error =
        open(&TinyLlama { extra: json!({"intermediate_size": 41}), ..TinyLlama::default() }).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("6 problems:"), "{text}");
    assert!(
        text.contains("`model.layers.0.mlp.gate_proj.weight`: expected shape [41, 24], found BF16[40, 24]")
    );
    assert!(text.contains("model.safetensors") && error.hint().unwrap().contains("different models"));
}

#[test]
fn missing_tensors_are_named_with_file_and_shape() {
    let tiny = TinyLlama { tied: false, ..TinyLlama::default() };
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = tiny.tensors().unwrap();
    tensors.retain(|(name, _)| name != "lm_head.weight");
    tiny.write_tensors(dir.path(), &tensors).unwrap();
    let error = refusal(dir.path());
    assert!(
        error.to_string().contains("model.safetensors: tensor `lm_head.weight` of shape [50, 24] is missing")
    );
    assert!(error.hint().unwrap().contains("tie_word_embeddings"));

    let error =
        open(&TinyLlama { extra: json!({"num_hidden_layers": 4}), ..TinyLlama::default() }).unwrap_err();
    assert!(error.to_string().contains("and 8 more"), "{error}");
}

#[test]
fn a_weight_of_integers_or_doubles_is_refused() {
    let tiny = TinyLlama::default();
    for dtype in [DType::I32, DType::F64] {
        let dir = tempfile::tempdir().unwrap();
        let mut tensors = tiny.tensors().unwrap();
        let last = tensors.last_mut().unwrap();
        last.1 = Tensor::from_f64(dtype, vec![24], &[1.0; 24]).unwrap();
        tiny.write_tensors(dir.path(), &tensors).unwrap();
        let error = refusal(dir.path());
        assert!(
            error.to_string().contains("`model.norm.weight`: expected F32, F16 or BF16 elements"),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn a_weight_that_is_not_finite_is_named_with_its_place() {
    for (dtype, value, word) in [
        (DType::BF16, f64::NAN, "NaN"),
        (DType::F16, f64::INFINITY, "inf"),
        (DType::F32, f64::NEG_INFINITY, "-inf"),
    ] {
        let tiny = TinyLlama { dtype, ..TinyLlama::default() };
        let mut tensors = tiny.tensors().unwrap();
        let (name, tensor) = tensors.iter_mut().find(|(n, _)| n.ends_with("1.mlp.down_proj.weight")).unwrap();
        let (name, mut values) = (name.clone(), tensor.to_f64());
        values[2 * 40 + 5] = value;
        *tensor = Tensor::from_f64(dtype, vec![24, 40], &values).unwrap();
        let dir = tempfile::tempdir().unwrap();
        tiny.write_tensors(dir.path(), &tensors).unwrap();
        let text = refusal(dir.path()).to_string();
        assert!(text.contains(&format!("tensor `{name}` holds {word} at [2, 5]")), "{text}");
        assert!(text.contains("model.safetensors"), "{text}");
        let trusting = ImportOptions { check_finite: false, ..Default::default() };
        assert!(Checkpoint::open_with(dir.path(), &trusting).is_ok());
    }
}

#[test]
fn a_truncated_file_names_the_tensor_that_is_cut() {
    let dir = make_checkpoint(&TinyLlama::default());
    let path = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = refusal(dir.path());
    assert!(error.to_string().contains("tensor `model.norm.weight` ends at data byte"), "{error}");
    assert!(error.hint().unwrap().contains("fetch the file again"));
}

#[test]
fn shards_that_do_not_fit_their_index() {
    let tiny = TinyLlama { shards: 3, ..TinyLlama::default() };
    let dir = make_checkpoint(&tiny);
    let index = dir.path().join("model.safetensors.index.json");
    let good = std::fs::read_to_string(&index).unwrap();
    let first = "model-00001-of-00003.safetensors";
    for (bad, expected) in [
        (good.replace("00001-of", "00009-of"), "shard"),
        (
            good.replacen(first, "model-00003-of-00003.safetensors", 1),
            "tensor `model.embed_tokens.weight` should be in",
        ),
        (good.replacen(first, "../other.safetensors", 1), "no name of a file in this folder"),
        (good.replacen(first, "/etc/passwd", 1), "no name of a file in this folder"),
        (good.replacen(&format!("\"{first}\""), "7", 1), "expected a text, found 7"),
        ("{}".to_string(), "`weight_map` is missing"),
        (r#"{"weight_map": {}}"#.to_string(), "is missing"),
    ] {
        std::fs::write(&index, bad).unwrap();
        let error = refusal(dir.path());
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    std::fs::remove_file(&index).unwrap();
    let error = refusal(dir.path());
    assert!(error.to_string().contains("there is no model.safetensors and no model.safetensors.index.json"));
    std::fs::write(dir.path().join("pytorch_model.bin"), b"x").unwrap();
    assert!(
        refusal(dir.path()).hint().unwrap().contains("`pytorch_model.bin` is in a format that is not read")
    );
}

#[test]
fn tensors_that_the_graph_does_not_use_are_listed() {
    let tiny = TinyLlama::default();
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = tiny.tensors().unwrap();
    let extra = Tensor::from_f32(vec![3], vec![0.0; 3]).unwrap();
    tensors.push(("model.layers.0.self_attn.q_proj.bias".into(), extra.clone()));
    tensors.push(("model.layers.0.self_attn.rotary_emb.inv_freq".into(), extra));
    tiny.write_tensors(dir.path(), &tensors).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.unused_tensors(), ["model.layers.0.self_attn.q_proj.bias"]);
}

#[test]
fn random_weights_need_only_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), TinyLlama::default().config().to_string()).unwrap();
    let make = |seed| Checkpoint::random(dir.path(), &ImportOptions::default(), seed).unwrap();
    let checkpoint = make(5);
    for (_, value) in checkpoint.graph().weights() {
        let tensor = checkpoint.model().weight(&value.name).unwrap();
        assert_eq!(tensor.shape(), value.ty.sizes(&Symbols::new()).unwrap());
        assert_eq!(tensor.dtype(), DType::BF16);
    }
    assert_eq!(checkpoint.weights_hash(), make(5).weights_hash());
    assert_ne!(checkpoint.weights_hash(), make(6).weights_hash());
}

#[test]
fn the_bundled_models_open() {
    let bundled = [
        ("llama", 8, 74, 4096, 512),
        ("llama_draft", 4, 38, 4096, 512),
        ("llama_head64", 1, 11, 320, 4096),
        ("llava", 3, 69, 480, 384),
        ("llama_tasks", 4, 38, 288, 256),
        ("qwen2_moe_head128", 1, 19, 320, 4096),
    ];
    for (name, layers, weights, vocab, context) in bundled {
        let checkpoint = Checkpoint::open(tapml_testing::model(name)).unwrap();
        assert_eq!(checkpoint.hidden_values().len(), layers + 1);
        assert_eq!(checkpoint.graph().weights().count(), weights);
        assert_eq!((checkpoint.vocab(), checkpoint.context()), (vocab, context));
        // A tower has a norm for a result of its own, which LLaVA does not take.
        assert!(checkpoint.unused_tensors().iter().all(|name| name.contains(".post_layernorm.")), "{name}");
    }
}

/// Values that a configuration should not have, and some that it may.
fn value() -> impl Strategy<Value = serde_json::Value> {
    let odd = [
        json!(null),
        json!(true),
        json!(""),
        json!("silu"),
        json!([]),
        json!({}),
        json!([1, 2]),
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(24),
        json!(7),
        json!(0.5),
        json!(1e300),
        json!(-1e300),
        json!(u64::MAX),
        json!(u32::MAX),
        json!({"rope_type": "llama3", "factor": 2.0}),
        json!({"type": "linear", "factor": 1e308}),
    ];
    prop::sample::select(odd.to_vec())
}

/// The weights of the default checkpoint, written once.
fn default_weights() -> PathBuf {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    DIR.get_or_init(|| make_checkpoint(&TinyLlama::default())).path().join("model.safetensors")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any value under any key is either served or refused with a message; nothing panics.
    #[test]
    fn strange_configurations_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..4),
        random in any::<bool>(),
    ) {
        let more = ["rope_scaling", "rope_parameters", "hidden_act", "quantization_config", "dtype", "torch_dtype"];
        let config = TinyLlama::default().config();
        let keys: Vec<&str> = config.as_object().unwrap().keys().map(String::as_str).chain(more).collect();
        let extra = changes.into_iter().map(|(key, value)| (keys[key.index(keys.len())].to_string(), value)).collect();
        let tiny = TinyLlama { extra: serde_json::Value::Object(extra), ..TinyLlama::default() };
        let dir = tempfile::tempdir().unwrap();
        std::fs::hard_link(default_weights(), dir.path().join("model.safetensors")).unwrap();
        std::fs::write(dir.path().join("config.json"), tiny.config().to_string()).unwrap();
        let opened = if random { Checkpoint::random(dir.path(), &ImportOptions::default(), 1) } else { Checkpoint::open(dir.path()) };
        if let Err(error) = opened {
            prop_assert!(!matches!(error.kind(), ErrorKind::Bug), "{}", error);
        }
    }
}
