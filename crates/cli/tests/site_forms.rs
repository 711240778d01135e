//! Sites of checkpoints in other forms: RWKV with its World vocabulary, GGUF files.
#![allow(clippy::unwrap_used)]

mod common;

use common::site::{Files, Oddities, compile, expect_same, generate_on_cpu, read_json, run_node};
use common::stderr;
use common::tapml;
use common::world::with_vocabulary;
use serde_json::{Value, json as value};
use std::path::Path;

/// Loads a site in Dawn and compares what it writes with `cpu`, the prompt twice: states must begin anew.
fn expect_in_dawn(folder: &Path, model: &str, prompt: &str) {
    let (site, _) = compile(folder, model, &["--positions", "64"]);
    let files = Files::serve(&site, Oddities::default());
    let write = value!({"write": {"prompt": prompt, "max_tokens": 6}});
    let steps = value!([{"load": files.url}, write, {"check": true}, write]);
    let Some(posted) = run_node(&files, &site, &steps) else { return };
    let expected = generate_on_cpu(folder, model, prompt, &["--max-tokens", "6"]);
    for written in [&posted[1], &posted[3]] {
        expect_same(written, &expected);
        assert_eq!(written["usage"]["prompt_tokens"], expected["prompt_ids"].as_array().unwrap().len());
    }
    let report = &posted[2]["report"];
    assert_eq!((&report["failed"], &report["skipped"]), (&value!(0), &value!([])), "{report}");
}

#[test]
#[ignore = "takes minutes on a software adapter; run it with --ignored"]
fn rwkv_models_with_their_own_vocabulary_run() {
    for name in ["rwkv5_tiny", "rwkv6_tiny", "rwkv7_tiny"] {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        std::fs::create_dir(&model).unwrap();
        with_vocabulary(&tapml_testing::golden(name), &model);
        expect_in_dawn(folder.path(), "model", "你好，世界！ The sea\n\n");
    }
}

/// A file of GGUF (`docs/gguf.md` of ggml) in the making.
#[derive(Default)]
struct Gguf {
    pairs: (u64, Vec<u8>),
    tensors: (u64, Vec<u8>),
    data: Vec<u8>,
}

impl Gguf {
    fn pair(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.pairs.0 += 1;
        self.pairs.1.extend([text(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat());
    }

    /// Numbers that are small and not all alike.
    fn tensor(&mut self, name: &str, sizes: &[u64]) {
        self.tensors.0 += 1;
        let entry = &mut self.tensors.1;
        entry.extend([text(&format!("{name}.weight")), (sizes.len() as u32).to_le_bytes().to_vec()].concat());
        sizes.iter().for_each(|size| entry.extend(size.to_le_bytes()));
        // Of type F32.
        entry.extend([0u32.to_le_bytes().to_vec(), (self.data.len() as u64).to_le_bytes().to_vec()].concat());
        let seed = self.tensors.0;
        let number = |i: u64| (((i + seed * 7919) * 2_654_435_761 % 65_521) as f32 / 65_521.0 - 0.5) * 0.6;
        (0..sizes.iter().product()).for_each(|i| self.data.extend(number(i).to_le_bytes()));
    }

    fn file(&self) -> Vec<u8> {
        let head = [b"GGUF\x03\0\0\0".to_vec(), self.tensors.0.to_le_bytes().to_vec()].concat();
        let mut bytes = [head, self.pairs.0.to_le_bytes().to_vec(), self.pairs.1.clone()].concat();
        bytes.extend(&self.tensors.1);
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        [bytes, self.data.clone()].concat()
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A Llama of one layer with the vocabulary of a bundled model, as llama.cpp's converter would write it.
fn write_gguf(path: &Path) {
    let json = read_json(&tapml_testing::root().join("models/llama_head64/tokenizer.json"));
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<(u64, &String)> =
        vocab.iter().map(|(token, id)| (id.as_u64().unwrap(), token)).collect();
    tokens.sort();
    let merges = json["model"]["merges"].as_array().unwrap().iter().map(|merge| match merge {
        Value::String(text) => text.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
    });
    let list = |kind: u32, count: usize, items: Vec<u8>| {
        [kind.to_le_bytes().to_vec(), (count as u64).to_le_bytes().to_vec(), items].concat()
    };
    // Types of values: 4 a u32, 5 an i32, 6 an f32, 8 a text, 9 an array.
    let mut file = Gguf::default();
    let numbers = [
        ("llama.context_length", 64u32),
        ("llama.embedding_length", 32),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", 32),
        ("llama.attention.head_count", 2),
        ("tokenizer.ggml.bos_token_id", 0),
        ("tokenizer.ggml.eos_token_id", 1),
    ];
    file.pair("general.architecture", 8, &text("llama"));
    numbers.iter().for_each(|(key, number)| file.pair(key, 4, &number.to_le_bytes()));
    file.pair("llama.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
    file.pair("tokenizer.ggml.model", 8, &text("gpt2"));
    file.pair("tokenizer.ggml.pre", 8, &text("gpt-2"));
    let kinds = tokens.iter().flat_map(|(id, _)| (if *id < 3 { 3i32 } else { 1 }).to_le_bytes()).collect();
    file.pair("tokenizer.ggml.token_type", 9, &list(5, tokens.len(), kinds));
    let texts = tokens.iter().flat_map(|(_, token)| text(token)).collect();
    file.pair("tokenizer.ggml.tokens", 9, &list(8, tokens.len(), texts));
    let merges: Vec<String> = merges.collect();
    file.pair(
        "tokenizer.ggml.merges",
        9,
        &list(8, merges.len(), merges.iter().flat_map(|m| text(m)).collect()),
    );
    let (square, row) = (&[32u64, 32][..], &[32u64][..]);
    file.tensor("token_embd", &[32, tokens.len() as u64]);
    file.tensor("output_norm", row);
    for name in ["attn_norm", "ffn_norm"] {
        file.tensor(&format!("blk.0.{name}"), row);
    }
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
        file.tensor(&format!("blk.0.{name}"), square);
    }
    std::fs::write(path, file.file()).unwrap();
}

#[test]
fn a_gguf_file_becomes_a_site_with_the_tokenizer_of_its_metadata() {
    let folder = tempfile::tempdir().unwrap();
    write_gguf(&folder.path().join("model.gguf"));
    expect_in_dawn(folder.path(), "model.gguf", "Once upon a time, naïve");
}

#[test]
fn models_that_cut_pictures_in_parts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = tapml_testing::golden("phi3_v_tiny").display().to_string();
    let mut command = tapml(folder.path());
    let said = stderr(command.args(["compile", &model, "--target", "webgpu", "--out", "site"]), 2);
    assert!(said.contains("a site takes images whole"), "{said}");
    assert!(!folder.path().join("site").exists());
}
