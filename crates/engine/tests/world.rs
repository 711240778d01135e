//! The tokenizer of RWKV's World models against the authors' own: `tools/goldens/rwkv.py` made the file of texts and ids,
//! and the vocabulary, which is cut to the tokens that occur in the texts and the single bytes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tapml_engine::Tokenizer;

const VOCABULARY: &str = "rwkv_vocab_v20230424.txt";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/rwkv_world")
}

fn world() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| Tokenizer::open(folder()).unwrap())
}

#[derive(Deserialize)]
struct Golden {
    texts: Vec<Text>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
}

fn golden() -> Golden {
    serde_json::from_slice(&std::fs::read(folder().join("ids.json")).unwrap()).unwrap()
}

fn stream_ids(ids: &[u32]) -> String {
    let mut stream = world().stream();
    let pieces: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    pieces + &stream.finish().unwrap()
}

#[test]
fn ids_are_those_of_the_authors() {
    let golden = golden();
    assert!(golden.texts.len() >= 8);
    for Text { text, ids } in golden.texts {
        assert_eq!(world().encode(&text).unwrap(), ids, "{text:?}");
        assert_eq!(world().encode_plain(&text).unwrap(), ids, "{text:?}");
        assert_eq!(world().decode(&ids).unwrap(), text);
        assert_eq!(stream_ids(&ids), text);
    }
}

#[test]
fn token_0_ends_a_text() {
    assert_eq!((world().bos(), world().eos(), world().token(0)), (None, Some(0), None));
    assert_eq!(world().decode(&[0, 34]).unwrap(), "!");
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(folder().join(VOCABULARY), dir.path().join(VOCABULARY)).unwrap();
    let config = r#"{"bos_token": "<s>", "eos_token": "<s>", "add_bos_token": true}"#;
    std::fs::write(dir.path().join("tokenizer_config.json"), config).unwrap();
    let named = Tokenizer::open(dir.path()).unwrap();
    assert_eq!((named.bos(), named.eos(), named.token_id("<s>")), (Some(0), Some(0), Some(0)));
    assert_eq!(named.token(0).as_deref(), Some("<s>"));
    assert_eq!(named.encode("!").unwrap(), [0, 34]);
    assert_eq!(named.encode_plain("!<s>!").unwrap(), [34, 0, 34]);
    assert_eq!((named.token_id("!"), named.token(34).as_deref()), (Some(34), Some("!")));
    assert_eq!(named.vocab(), world().vocab());
}

#[test]
fn a_token_of_the_list_may_be_the_end() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(folder().join(VOCABULARY), dir.path().join(VOCABULARY)).unwrap();
    std::fs::write(dir.path().join("tokenizer_config.json"), r#"{"eos_token": "\n\n"}"#).unwrap();
    let tokenizer = Tokenizer::open(dir.path()).unwrap();
    assert_eq!((tokenizer.eos(), tokenizer.encode("\n\n").unwrap()), (Some(261), vec![261]));
}

/// Of several files the published name goes first, then the last date; other tokenizers go before them.
#[test]
fn the_file_is_found_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let read = |dir: &Path| Tokenizer::open(dir).map_err(|e| e.to_string());
    let names = ["world_vocab_v9.txt", "rwkv_vocab_v20220101.txt", VOCABULARY];
    for name in names {
        std::fs::write(dir.path().join(name), "broken\n").unwrap();
        assert!(read(dir.path()).unwrap_err().contains(name), "{name}");
    }
    std::fs::write(dir.path().join("tokenizer.model"), "broken").unwrap();
    assert!(read(dir.path()).unwrap_err().contains("tokenizer.model"));
    std::fs::write(dir.path().join("tokenizer.json"), "broken").unwrap();
    assert!(read(dir.path()).unwrap_err().contains("tokenizer.json"));
}

#[test]
fn a_broken_vocabulary_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(folder().join(VOCABULARY)).unwrap();
    let and = |more: &[u8]| [whole.as_slice(), more].concat();
    let cases = [
        (b"1 ' ' 2\n".to_vec(), "line 1: expected the count 1"),
        (vec![0xff, 0xfe], "UTF-8"),
        (Vec::new(), "no token is the single byte 0"),
        (and(b"65530 'a' 1\n"), "stands there twice"),
        (and(b"261 'no such token' 13\n"), "stands there twice"),
        (and(&[b'x'; 1 << 20]), "line 937: expected an id"),
        (vec![b'\n'; (16 << 20) + 1], "expected a vocabulary of at most 16777216 bytes, found 16777217"),
    ];
    for (bytes, expected) in cases {
        std::fs::write(dir.path().join(VOCABULARY), bytes).unwrap();
        let error = Tokenizer::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(VOCABULARY) && error.contains(expected), "expected {expected}, found {error}");
        assert!(error.len() < 500, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_text_comes_back(text in any::<String>()) {
        let ids = world().encode(&text).unwrap();
        prop_assert_eq!(world().decode(&ids).unwrap(), text.as_str());
        prop_assert_eq!(stream_ids(&ids), text);
    }

    #[test]
    fn any_ids_stream_as_they_decode(ids in prop::collection::vec(0u32..700, 0..24)) {
        prop_assert_eq!(stream_ids(&ids), world().decode(&ids).unwrap());
    }

    /// A damaged file is refused, or gives a tokenizer that loses nothing.
    #[test]
    fn damaged_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = std::fs::read(folder().join(VOCABULARY)).unwrap();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(VOCABULARY), bytes).unwrap();
        if let Ok(tokenizer) = Tokenizer::open(dir.path()) {
            let text = "a 🦀 \r\n\n语 é";
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap(), text);
        }
    }
}
