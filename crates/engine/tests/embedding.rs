//! Vectors of texts: what a checkpoint's files say of them, and an encoder that fails.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::{Value, json};
use std::path::Path;
use std::sync::mpsc::channel;
use tapml_engine::{
    EmbeddingModel, EmbeddingOptions, EncoderLimits, PlatformEncoder, PoolingMode, TextEncoder,
};
use tapml_exec::CpuPlatform;
use tapml_graph::{Error, ErrorKind, Result};
use tapml_import::safetensors::File;
use tapml_import::{Checkpoint, Config};

fn open(files: &[(&str, Value)], config: Value) -> Result<EmbeddingOptions> {
    let folder = tempfile::tempdir().unwrap();
    for (name, json) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, json.to_string()).unwrap();
    }
    let config = Config::parse(Path::new("config.json"), config.to_string().as_bytes())?;
    EmbeddingOptions::open(folder.path(), &config)
}

fn modules(last: &str) -> (&'static str, Value) {
    let types = ["a.Transformer", "a.b.Pooling", last];
    let entries = types.iter().zip(["", "1_Pooling", "2_Last"]);
    ("modules.json", entries.map(|(kind, path)| json!({ "type": kind, "path": path })).collect())
}

#[test]
fn files_of_sentence_transformers_are_read() {
    assert_eq!(open(&[], json!({})).unwrap(), EmbeddingOptions::default());
    let files = [
        modules("a.Normalize"),
        (
            "1_Pooling/config.json",
            json!({
                "word_embedding_dimension": 4, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true,
                "pooling_mode_max_tokens": true,
            }),
        ),
        ("sentence_bert_config.json", json!({ "max_seq_length": 128, "do_lower_case": true })),
        (
            "config_sentence_transformers.json",
            json!({ "prompts": { "query": "Query: ", "other": "x" }, "default_prompt_name": "query" }),
        ),
    ];
    let options = open(&files, json!({ "matryoshka_dimensions": [2, 4] })).unwrap();
    let expected = EmbeddingOptions {
        pooling: vec![PoolingMode::Max, PoolingMode::Mean],
        normalize: true,
        max_tokens: Some(128),
        lowercase: true,
        prefix: "Query: ".into(),
        matryoshka: true,
        sizes: vec![2, 4],
    };
    assert_eq!(options, expected);
    assert_eq!((options.prepare("A Dog").as_ref(), options.size(4)), ("query: a dog", 8));
    let named = [modules("a.Normalize"), ("1_Pooling/config.json", json!({ "pooling_mode": "cls" }))];
    assert_eq!(open(&named, json!({})).unwrap().pooling, [PoolingMode::Cls]);
}

#[test]
fn what_is_not_served_is_refused() {
    let pooling = |json: Value| ("1_Pooling/config.json", json);
    for (files, config, told) in [
        (
            vec![modules("a.Dense"), pooling(json!({ "pooling_mode": "cls" }))],
            json!({}),
            "the module `Dense`",
        ),
        (vec![modules("a.Normalize")], json!({}), "1_Pooling"),
        (vec![modules("a.Normalize"), pooling(json!({}))], json!({}), "expected one of cls"),
        (
            vec![modules("a.Normalize"), pooling(json!({ "pooling_mode": "sum" }))],
            json!({}),
            "expected one of cls",
        ),
        (
            vec![modules("a.Normalize"), pooling(json!({ "pooling_mode": "cls", "include_prompt": false }))],
            json!({}),
            "without the rows of the prompt",
        ),
        (
            vec![("modules.json", json!([{ "type": "Pooling", "path": "/etc" }]))],
            json!({}),
            "outside of the folder",
        ),
        (vec![("modules.json", json!({}))], json!({}), "no list of modules"),
        (vec![("sentence_bert_config.json", json!({ "max_seq_length": 0 }))], json!({}), "max_seq_length"),
        (vec![], json!({ "matryoshka_dimensions": [-1] }), "matryoshka_dimensions"),
        (
            vec![("config_sentence_transformers.json", json!({ "prompts": {}, "default_prompt_name": "x" }))],
            json!({}),
            "`prompts.x` is missing",
        ),
    ] {
        let error = open(&files, config).unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
}

/// Loses its device at some texts; another one panics, and another gives no numbers.
struct Failing {
    lost: bool,
    reopened: u64,
}

impl TextEncoder for Failing {
    fn limits(&self) -> EncoderLimits {
        EncoderLimits { context: 8, vocab: 100, width: 2 }
    }

    fn encode(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        assert!(!self.lost, "it is not used before it is reset");
        match ids[0] {
            // Each of its attempts is lost.
            10 => self.lost = true,
            11 => self.lost = self.reopened == 0,
            12 => panic!("as asked for"),
            13 => return Ok(vec![f32::NAN, 0.0]),
            _ => {}
        }
        if self.lost {
            return Err(Error::new(ErrorKind::DeviceLost, "the plug was pulled"));
        }
        Ok(ids.iter().flat_map(|&id| [id as f32, 1.0]).collect())
    }

    fn reset(&mut self) -> Result<()> {
        self.reopened += u64::from(self.lost);
        self.lost = false;
        Ok(())
    }

    fn reopened_count(&self) -> u64 {
        self.reopened
    }
}

#[test]
fn a_failure_concerns_one_text() {
    let encoder = Box::new(Failing { lost: false, reopened: 0 });
    let model = EmbeddingModel::start(encoder, EmbeddingOptions::default()).unwrap();
    let compute = |ids: &[u32]| {
        let (send, vector) = channel();
        model.submit(ids.to_vec(), None, move |vector| send.send(vector).unwrap());
        vector.recv().unwrap()
    };
    assert_eq!(compute(&[3, 5]).unwrap(), [4.0, 1.0]);
    assert_eq!(compute(&[11]).unwrap(), [11.0, 1.0], "the device came back");
    for (id, told) in [(10, "the plug was pulled"), (12, "the encoder panicked"), (13, "NaN")] {
        let error = compute(&[id]).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        assert_eq!(compute(&[3]).unwrap(), [3.0, 1.0], "after {id}");
    }
    // The vector is told before the counts of the next text.
    let stats = model.stats();
    assert_eq!((stats.running, stats.waiting, stats.finished, stats.failed), (0, 0, 5, 3));
    assert_eq!(stats.device_reopened, 3);
    model.close();
    assert!(compute(&[3]).unwrap_err().to_string().contains("shutting down"));
}

#[test]
fn vectors_of_a_bert_are_those_of_transformers() {
    let folder = tapml_testing::golden("bert_tiny");
    let golden = File::open(&folder.join("golden.safetensors")).unwrap();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let model = checkpoint.model();
    let encoder = PlatformEncoder::new(&mut CpuPlatform::new(), model, checkpoint.context()).unwrap();
    assert_eq!(encoder.limits(), EncoderLimits { context: 64, vocab: 79, width: 32 });
    let options = EmbeddingOptions {
        pooling: vec![PoolingMode::LastToken, PoolingMode::Mean],
        ..EmbeddingOptions::open(&folder, checkpoint.config()).unwrap()
    };
    let vectors = EmbeddingModel::start(Box::new(encoder), options).unwrap();
    for prompt in 0..3 {
        let tensor = |name: &str| golden.tensor(&format!("p{prompt}.{name}")).unwrap().to_f64();
        let ids: Vec<u32> = tensor("input_ids").iter().map(|id| *id as u32).collect();
        let (send, vector) = channel();
        vectors.submit(ids.clone(), None, move |vector| send.send(vector).unwrap());
        let vector = vector.recv().unwrap().unwrap();
        // The golden has the states at some positions, the last one among them.
        let states = tensor("hidden.2");
        let last = &states[states.len() - 32..];
        let range = last.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let wrong = vector.iter().zip(last).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(vector.len() == 64 && wrong <= 1e-4 * range, "prompt {prompt}: {wrong} of {range}");
        assert_eq!(vector[..32] == vector[32..], ids.len() == 1, "the mean is that of all rows");
    }
}
