//! The tokenizer against Transformers and against itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tapml_engine::{SpecialTokens, Tokenizer, bundled_prompts};
use tapml_import::safetensors::File;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn llama() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| Tokenizer::open(root().join("models/llama")).unwrap())
}

#[test]
fn ids_are_those_of_transformers() {
    let golden = File::open(&root().join("tests/goldens/llama/golden.safetensors")).unwrap();
    let prompts: Vec<String> = serde_json::from_str(&golden.metadata()["prompts"]).unwrap();
    assert_eq!(prompts.len(), 5);
    for (i, prompt) in prompts.iter().enumerate() {
        let expected = golden.tensor(&format!("p{i}.input_ids")).unwrap().to_f64();
        let found: Vec<f64> = llama().encode(prompt).unwrap().into_iter().map(f64::from).collect();
        assert_eq!(found, expected, "{prompt}");
        assert_eq!(&llama().decode(&llama().encode(prompt).unwrap()).unwrap(), prompt);
    }
}

#[test]
fn facts_of_the_bundled_tokenizer() {
    let tokenizer = llama();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.vocab()), (Some(0), Some(1), 4096));
    let expected = SpecialTokens {
        bos: Some("<|begin|>".into()),
        eos: Some("<|end|>".into()),
        pad: Some("<|pad|>".into()),
        unk: None,
        add_bos: true,
        add_eos: false,
    };
    assert_eq!(tokenizer.special(), &expected);
    assert!(tokenizer.chat_template().is_none());
    assert_eq!(tokenizer.encode_plain("<|begin|>The").unwrap(), tokenizer.encode("The").unwrap());
    assert_eq!(tokenizer.encode("").unwrap(), [0]);
}

#[test]
fn bundled_prompts_are_four_of_8_to_14_tokens() {
    let prompts = bundled_prompts();
    assert_eq!(prompts.len(), 4);
    for prompt in prompts {
        let tokens = llama().encode(prompt).unwrap().len();
        assert!((8..=14).contains(&tokens), "{prompt}: {tokens}");
    }
}

fn stream_ids(ids: &[u32]) -> Vec<String> {
    let mut stream = llama().stream();
    let mut pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    pieces.push(stream.finish().unwrap());
    pieces
}

#[test]
fn characters_of_several_tokens_come_out_whole() {
    let text = "naïve 🦀 über 数 ✓";
    let ids = llama().encode_plain(text).unwrap();
    assert!(ids.len() > text.split(' ').count() + 4, "the text must have characters of several tokens");
    let pieces = stream_ids(&ids);
    assert_eq!(pieces.concat(), text);
    assert!(pieces.iter().all(|p| !p.contains('\u{fffd}')), "{pieces:?}");
    assert!(pieces.iter().any(|p| p.ends_with('🦀')), "{pieces:?}");
}

#[test]
fn a_text_that_ends_within_a_character_ends_with_a_mark() {
    let ids = llama().encode_plain("a🦀").unwrap();
    let pieces = stream_ids(&ids[..ids.len() - 1]);
    assert_eq!(pieces[0], "a");
    assert!(pieces.last().unwrap().starts_with('\u{fffd}'), "{pieces:?}");
}

#[test]
fn special_tokens_give_no_text() {
    let pieces = stream_ids(&[0, llama().encode_plain("The").unwrap()[0], 1]);
    assert_eq!(pieces, ["", "The", "", ""]);
}

#[test]
fn bad_folders_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let error = Tokenizer::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json is missing") && error.hint().is_some(), "{error}");
    let model = r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}"#;
    for text in ["{", "{}", "[]", model] {
        std::fs::write(dir.path().join("tokenizer.json"), text).unwrap();
        let error = Tokenizer::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("tokenizer.json is no valid tokenizer"), "{error}");
    }
    std::fs::copy(root().join("models/llama/tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
    for (file, text, key) in [
        ("tokenizer_config.json", r#"{"bos_token": 3}"#, "`bos_token`"),
        ("tokenizer_config.json", r#"{"add_bos_token": "yes"}"#, "`add_bos_token`"),
        ("special_tokens_map.json", r#"{"eos_token": {"text": 1}}"#, "`eos_token`"),
    ] {
        std::fs::write(dir.path().join(file), text).unwrap();
        let error = Tokenizer::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(key), "{error}");
        std::fs::remove_file(dir.path().join(file)).unwrap();
    }
}

#[test]
fn special_tokens_may_be_objects_and_be_added_by_flags() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(root().join("models/llama/tokenizer.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["post_processor"] = serde_json::Value::Null;
    std::fs::write(dir.path().join("tokenizer.json"), json.to_string()).unwrap();
    let config = r#"{"bos_token": {"content": "<|begin|>"}, "eos_token": "<|end|>", "add_bos_token": true,
        "add_eos_token": true}"#;
    std::fs::write(dir.path().join("tokenizer_config.json"), config).unwrap();
    let tokenizer = Tokenizer::open(dir.path()).unwrap();
    let ids = tokenizer.encode("The").unwrap();
    assert_eq!((ids[0], ids[ids.len() - 1]), (0, 1));
    assert_eq!(ids.len(), tokenizer.encode_plain("The").unwrap().len() + 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn pieces_joined_are_the_text(text in "\\PC{0,24}") {
        let ids = llama().encode_plain(&text).unwrap();
        let pieces = stream_ids(&ids);
        prop_assert_eq!(pieces.concat(), llama().decode(&ids).unwrap());
        prop_assert_eq!(pieces.concat(), text);
    }

    #[test]
    fn any_ids_stream_without_failing(ids in prop::collection::vec(0u32..5000, 0..24)) {
        stream_ids(&ids);
    }
}
