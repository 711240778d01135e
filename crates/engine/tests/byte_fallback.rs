//! Tokenizers whose tokens are characters with single bytes as the last resort, as in Llama 2, and damaged tokenizer
//! files.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;
use tapml_engine::Tokenizer;
use tempfile::TempDir;

/// Three special tokens, 256 bytes, `▁` for the space and the letters a to z.
fn definition() -> Value {
    let mut vocab = Map::new();
    let specials = ["<unk>", "<s>", "</s>"].map(str::to_string);
    let bytes = (0..256).map(|b| format!("<0x{b:02X}>"));
    let letters = std::iter::once('▁').chain('a'..='z').map(String::from);
    for (id, token) in specials.into_iter().chain(bytes).chain(letters).enumerate() {
        vocab.insert(token, json!(id));
    }
    let special = |id, content| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": null, "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": vocab,
            "merges": []},
    })
}

fn open(text: &[u8]) -> Result<Tokenizer, tapml_graph::Error> {
    let dir: TempDir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), text).unwrap();
    Tokenizer::open(dir.path())
}

fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| open(definition().to_string().as_bytes()).unwrap())
}

fn stream_ids(ids: &[u32]) -> Vec<String> {
    let mut stream = tokenizer().stream();
    let mut pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    pieces.push(stream.finish().unwrap());
    pieces
}

#[test]
fn characters_of_bytes_come_out_whole_and_the_first_space_is_no_text() {
    let ids = tokenizer().encode("ab 🦀🦀é c").unwrap();
    assert_eq!(ids[0], 1);
    assert_eq!(ids.len(), 1 + 3 + 1 + 4 + 4 + 2 + 2, "the file's own limit of 4 tokens must not hold");
    let pieces = stream_ids(&ids);
    assert_eq!(pieces.concat(), "ab 🦀🦀é c");
    assert!(pieces.iter().all(|p| p.chars().count() <= 1), "{pieces:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_joined_are_the_text(text in "[a-c é🦀数\u{fffd}]{0,16}") {
        let ids = tokenizer().encode_plain(&text).unwrap();
        let pieces = stream_ids(&ids);
        prop_assert_eq!(pieces.concat(), tokenizer().decode(&ids).unwrap());
        prop_assert_eq!(pieces.concat(), text);
    }

    /// A damaged file is refused, or gives a tokenizer that works or fails with a message.
    #[test]
    fn damaged_files_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut text = definition().to_string().into_bytes();
        for (at, byte) in edits {
            let at = at.index(text.len());
            text[at] = byte;
        }
        use_file(&text);
    }
}

/// The same with values put elsewhere: other types, other objects of the file, nothing.
#[test]
fn exchanged_values_never_panic() {
    let file = definition();
    let odd = json!([null, [], {}, 0, u64::MAX, "x", [[]]]);
    let mut served = 0;
    for (i, place) in PLACES.iter().enumerate() {
        // Its own value, which must be served, and those of two other places.
        let others = [0, 1, 9].map(|step| file.pointer(PLACES[(i + step) % PLACES.len()]).unwrap());
        for value in odd.as_array().unwrap().iter().chain(others) {
            let mut changed = file.clone();
            *changed.pointer_mut(place).unwrap() = value.clone();
            served += usize::from(use_file(changed.to_string().as_bytes()));
        }
    }
    assert!(served >= PLACES.len(), "each place was once replaced by itself");
}

/// Whether the file is accepted; if so, it is used.
fn use_file(text: &[u8]) -> bool {
    let opened = open(text);
    if let Ok(tokenizer) = &opened {
        let ids = tokenizer.encode("ab 🦀 é").unwrap_or_default();
        let _ = tokenizer.decode(&ids);
    }
    opened.is_ok()
}

/// Places of the file that are exchanged.
const PLACES: &[&str] = &[
    "/added_tokens",
    "/added_tokens/1/id",
    "/added_tokens/1/content",
    "/normalizer",
    "/normalizer/normalizers",
    "/normalizer/normalizers/1/pattern",
    "/pre_tokenizer",
    "/post_processor",
    "/post_processor/single",
    "/post_processor/special_tokens",
    "/post_processor/special_tokens/<s>/ids",
    "/decoder",
    "/decoder/decoders",
    "/decoder/decoders/3/start",
    "/decoder/decoders/3/content",
    "/model",
    "/model/vocab",
    "/model/vocab/a",
    "/model/merges",
    "/model/unk_token",
    "/model/byte_fallback",
    "/model/dropout",
    "/truncation",
    "/padding",
    "/version",
];
