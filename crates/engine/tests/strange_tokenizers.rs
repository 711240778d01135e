//! Tokenizers of a stranger: the bundled one with parts that take all memory. Each is refused within a bounded amount.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{measure_work, turn};
use serde_json::{Value, json};
use std::path::Path;
use tapml_engine::Tokenizer;
use tapml_graph::Result;

/// The bundled tokenizer with another part.
fn tokenizer_with(part: &str, value: Value) -> Result<Tokenizer> {
    let llama = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/llama/tokenizer.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(llama).unwrap()).unwrap();
    file[part] = value;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    Tokenizer::open(folder.path())
}

/// Loads a tokenizer with another part and works with it, which must be refused with these words.
fn refuses(what: &str, part: &str, value: Value, words: &str) {
    let work = || {
        tokenizer_with(part, value).and_then(|tokenizer| {
            let ids = tokenizer.encode("The old man said <|begin|> é \u{FDFA} a a a aaaaaaaaaaaaaaaaaaaa")?;
            tokenizer.decode(&ids.repeat(4)).map(|text| text.len())
        })
    };
    let error = measure_work(what, work).0.expect_err(what).to_string();
    assert!(error.contains("tokenizer.json") && error.contains(words), "{what}: {error}");
}

fn sequence(part: &str, step: Value, count: usize) -> Value {
    json!({"type": "Sequence", part: vec![step; count]})
}

const LONG: &str = "makes the text too long";

#[test]
fn steps_that_make_a_text_longer_and_longer_end() {
    let _turn = turn();
    let string =
        |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let regex = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"Regex": from}, "content": to});
    for step in [string("a", "aa"), regex("a", "aa"), regex("", "aaaaaaaa"), string("", "a b")] {
        refuses("normalizer", "normalizer", sequence("normalizers", step.clone(), 60), LONG);
        refuses("decoder", "decoder", sequence("decoders", step, 60), LONG);
    }
    let nested = (0..50).fold(
        string("a", "aa"),
        |inner, _| json!({"type": "Sequence", "normalizers": [inner, string("a", "aa")]}),
    );
    refuses("nested", "normalizer", nested, LONG);
    refuses("at once", "normalizer", regex("", &"a".repeat(1 << 20)), LONG);
    refuses("at once", "decoder", regex("", &"a".repeat(1 << 20)), LONG);
    let prepend = json!({"type": "Prepend", "prepend": "a".repeat(1 << 20)});
    refuses("prepend", "normalizer", sequence("normalizers", prepend, 60), LONG);
    refuses("bytes", "normalizer", sequence("normalizers", json!({"type": "ByteLevel"}), 60), LONG);
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false});
    refuses("bytes", "pre_tokenizer", sequence("pretokenizers", bytes, 60), LONG);
}

#[test]
fn templates_around_a_text_are_bounded() {
    let _turn = turn();
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let token = json!({"SpecialToken": {"id": "x", "type_id": 0}});
    let template = |single: Vec<Value>, ids: usize| {
        let tokens = json!({"x": {"id": "x", "ids": vec![0; ids], "tokens": vec!["x"; ids]}});
        json!({"type": "TemplateProcessing", "single": single, "pair": [text.clone()], "special_tokens": tokens})
    };
    let twice = template(vec![text.clone(), text.clone()], 1);
    let words = "repeats the text or adds more than 1024 tokens";
    refuses("twice", "post_processor", twice.clone(), words);
    refuses("sequence", "post_processor", sequence("processors", twice, 40), words);
    let many = std::iter::repeat_n(token, 2000).chain([text.clone()]).collect();
    refuses("many", "post_processor", template(many, 2000), words);
}

#[test]
fn patterns_that_are_large_to_compile_are_refused() {
    let _turn = turn();
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    for pattern in ["\\w{1000}", "((a{20}){20}){20}", "(?:\\pL{30}(?=a)){30}"] {
        refuses(pattern, "pre_tokenizer", split(pattern), "repetitions within patterns");
    }
    refuses("long", "pre_tokenizer", split(&"\\pL".repeat(10_000)), "bytes of patterns");
    refuses("deep", "pre_tokenizer", split(&"(".repeat(10_000)), "no valid tokenizer");
    refuses("many", "pre_tokenizer", sequence("pretokenizers", split("\\pL+"), 300), "steps, at most 256");
    let deep = (0..200).fold(split("a"), |inner, _| sequence("pretokenizers", inner, 1));
    refuses("deep", "pre_tokenizer", deep, "recursion limit exceeded");
    // Without a bound, the match takes 2^40 steps.
    let slow = tokenizer_with("pre_tokenizer", split("(a+)+\\1b|a")).unwrap();
    assert!(!slow.encode(&"a".repeat(40)).unwrap().is_empty());
}

#[test]
fn tables_of_characters_are_looked_at() {
    let _turn = turn();
    let table = |text: &str| json!({"type": "Precompiled", "precompiled_charsmap": text});
    refuses("a claim", "normalizer", table("/////wAAAAA="), "table of characters is damaged");
    refuses("no base64", "normalizer", table("?"), "no base64");
    let long = "BAAAAAAAAAB".to_string() + &"hYWFh".repeat(200);
    refuses("a long one", "normalizer", table(&long), "table of characters replaces one by");
}

#[test]
fn words_that_take_the_square_of_their_length_are_refused() {
    let _turn = turn();
    let model = json!({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 1_000_000_000, "vocab": {"a": 0}});
    refuses("words", "model", model, "max_input_chars_per_word");
}

#[test]
fn long_texts_of_words_are_cut() {
    let _turn = turn();
    let prepend = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}, {"type": "NFKC"}]});
    let tokenizer = tokenizer_with("normalizer", prepend).unwrap();
    let ids = tokenizer.encode(&"é a ".repeat(100_000)).unwrap();
    assert!(ids.len() > 100_000, "{}", ids.len());
}
