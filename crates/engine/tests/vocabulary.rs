//! Tokenizers without `tokenizer.json`: those of GGUF files and SentencePiece's own files, against the `sentencepiece`
//! package (`tools/goldens/sentencepiece_files.py`) and against the `tokenizer.json` of the same vocabulary.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tapml_engine::{Chat, Message, SpecialTokens, Tokenizer, bundled_prompts};
use tapml_import::testing::gguf::Writer;

/// SentencePiece's names of the goldens' models.
const MODELS: [&str; 4] = ["bpe", "symbols", "unigram", "unigram_bytes"];
/// Texts that cut tokenizers apart.
const TEXTS: [&str; 8] = [
    "",
    " a",
    "It's 12345 o'clock;  they'LL\n\n be late… ",
    "naïve 🦀 über 数 ✓",
    "\t\ttabs\r\nand   spaces   ",
    "x_y=z+1; if(a<b){return 3.14;}",
    "<|begin|>The end<|end|>",
    "ÀÉÎ ñandú e\u{301}te\u{301}",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn goldens() -> PathBuf {
    static UNPACKED: OnceLock<()> = OnceLock::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    UNPACKED.get_or_init(|| {
        tapml_testing::unpack_archive("tests/goldens/sentencepiece.tar.zst", folder);
    });
    folder.join("sentencepiece")
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_string()).collect()
}

/// `tokenizer.model` and the GGUF file must give the ids that the `sentencepiece` package gives, and its texts where no
/// piece is unknown.
#[test]
fn ids_and_texts_are_those_of_sentencepiece() {
    for name in MODELS {
        let golden = std::fs::read_to_string(goldens().join(format!("{name}.json"))).unwrap();
        let golden: Value = serde_json::from_str(&golden).unwrap();
        let own = Tokenizer::open(goldens().join(name)).unwrap();
        let gguf = Tokenizer::open(goldens().join(format!("{name}.gguf"))).unwrap();
        let (texts, decoded) = (strings(&golden["texts"]), strings(&golden["decoded"]));
        let unknown = own.special().unk.as_ref().and_then(|unk| own.token_id(unk)).unwrap();
        for (i, text) in texts.iter().enumerate() {
            let expected: Vec<u32> =
                golden["ids"][i].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            for (tokenizer, kind) in [(&own, "tokenizer.model"), (&gguf, "gguf")] {
                assert_eq!(tokenizer.encode_plain(text).unwrap(), expected, "{name}, {kind}: {text:?}");
                if !expected.contains(&unknown) && !text.starts_with('▁') {
                    assert_eq!(tokenizer.decode(&expected).unwrap(), decoded[i], "{name}, {kind}: {text:?}");
                }
            }
        }
    }
}

#[test]
fn special_tokens_of_sentencepiece_files() {
    let tokenizer = Tokenizer::open(goldens().join("bpe")).unwrap();
    let expected = SpecialTokens {
        bos: Some("<s>".into()),
        eos: Some("</s>".into()),
        pad: None,
        unk: Some("<unk>".into()),
        add_bos: true,
        add_eos: false,
    };
    assert_eq!(tokenizer.special(), &expected);
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.vocab()), (Some(1), Some(2), 600));
    assert_eq!(tokenizer.encode("a").unwrap()[0], 1);
    assert!(!Tokenizer::open(goldens().join("unigram")).unwrap().special().add_bos, "it has no such token");

    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(goldens().join("bpe/tokenizer.model"), dir.path().join("tokenizer.model")).unwrap();
    let config = r#"{"add_bos_token": false, "add_eos_token": true, "chat_template": "{{ eos_token }}!"}"#;
    std::fs::write(dir.path().join("tokenizer_config.json"), config).unwrap();
    let tokenizer = Tokenizer::open(dir.path()).unwrap();
    let ids = tokenizer.encode("a").unwrap();
    assert!(ids[0] != 1 && ids.ends_with(&[2]), "{ids:?}");
    let chat =
        tokenizer.chat_template().unwrap().render(&Chat::new(&[Message::new("user", "x")]).unwrap()).unwrap();
    assert_eq!(chat, "</s>!");
}

/// `models/llama`'s tokenizer as llama.cpp's converter would write it.
fn llama_gguf(pre: &str) -> Writer {
    let text = std::fs::read_to_string(root().join("models/llama/tokenizer.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let mut tokens: Vec<(u64, String)> = json["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token.clone()))
        .collect();
    tokens.sort();
    let kinds: Vec<i32> = tokens.iter().map(|(id, _)| if *id < 3 { 3 } else { 1 }).collect();
    let tokens: Vec<String> = tokens.into_iter().map(|(_, token)| token).collect();
    let merges: Vec<String> = strings(&json["model"]["merges"]);
    let mut writer = Writer::new();
    writer.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
    writer.texts("tokenizer.ggml.tokens", &tokens).wholes("tokenizer.ggml.token_type", &kinds);
    writer.texts("tokenizer.ggml.merges", &merges).flag("tokenizer.ggml.add_bos_token", true);
    writer.whole("tokenizer.ggml.bos_token_id", 0).whole("tokenizer.ggml.eos_token_id", 1);
    writer.whole("tokenizer.ggml.padding_token_id", 2);
    writer
}

fn open(writer: &Writer) -> Result<Tokenizer, tapml_graph::Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocab.gguf");
    std::fs::write(&path, writer.file()).unwrap();
    Tokenizer::open(path)
}

fn both_tokenizers() -> &'static [Tokenizer; 2] {
    static TOKENIZERS: OnceLock<[Tokenizer; 2]> = OnceLock::new();
    TOKENIZERS.get_or_init(|| {
        [Tokenizer::open(root().join("models/llama")).unwrap(), open(&llama_gguf("gpt-2")).unwrap()]
    })
}

#[test]
fn a_gguf_file_of_a_tokenizer_json_gives_the_same_tokenizer() {
    let [json, gguf] = both_tokenizers();
    assert_eq!((json.bos(), json.eos(), json.vocab()), (gguf.bos(), gguf.eos(), gguf.vocab()));
    assert_eq!(json.special(), gguf.special());
    for text in TEXTS.into_iter().chain(bundled_prompts()) {
        let ids = json.encode_plain(text).unwrap();
        assert_eq!(gguf.encode_plain(text).unwrap(), ids, "{text:?}");
        // The file's flag adds no second token where a text has one already; the template of `tokenizer.json` does.
        if !text.starts_with("<|begin|>") {
            assert_eq!(gguf.encode(text).unwrap(), json.encode(text).unwrap(), "{text:?}");
        }
        assert_eq!(gguf.decode(&ids).unwrap(), json.decode(&ids).unwrap(), "{text:?}");
    }
}

/// Every way of cutting gives back the text; those that cut in other ways give other ids.
#[test]
fn each_way_of_cutting_loses_nothing() {
    let ids = |pre: &str| {
        let tokenizer = open(&llama_gguf(pre)).unwrap();
        let cut = |text: &&str| {
            let ids = tokenizer.encode_plain(text).unwrap();
            let composed = ["qwen2", "olmo", "command-r"].contains(&pre);
            if !composed && !text.contains("<|") {
                assert_eq!(&tokenizer.decode(&ids).unwrap(), text, "{pre}");
            }
            ids
        };
        TEXTS.iter().map(cut).collect::<Vec<_>>()
    };
    let gpt2 = ids("gpt-2");
    for pre in
        ["llama-bpe", "qwen2", "tekken", "gpt-4o", "starcoder", "falcon", "deepseek-llm", "deepseek-coder"]
    {
        assert_ne!(ids(pre), gpt2, "{pre}");
    }
    for pre in ["deepseek-v3", "default", "dbrx", "stablelm2"] {
        ids(pre);
    }
    assert_eq!(ids("phi-2"), gpt2);
    assert_eq!(ids("olmo")[..7], gpt2[..7], "only what can be composed differs");
    assert_ne!(ids("olmo")[7], gpt2[7]);
    assert!(!open(&llama_gguf("command-r")).unwrap().encode("3").unwrap().is_empty());
}

#[test]
fn word_pieces_are_found_from_the_left() {
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁the", "▁,", "▁e"];
    let mut writer = Writer::new();
    writer.text("tokenizer.ggml.model", "bert").texts("tokenizer.ggml.tokens", &tokens);
    writer.wholes("tokenizer.ggml.token_type", &[3, 2, 3, 3, 1, 1, 1, 1, 1, 1]);
    writer.whole("tokenizer.ggml.bos_token_id", 2).whole("tokenizer.ggml.seperator_token_id", 3);
    writer.whole("tokenizer.ggml.unknown_token_id", 1).whole("tokenizer.ggml.padding_token_id", 0);
    let tokenizer = open(&writer).unwrap();
    assert_eq!(tokenizer.encode("The UNAFFABLE,é x").unwrap(), [2, 7, 4, 5, 6, 8, 9, 1, 3]);
    assert_eq!(tokenizer.decode(&[2, 7, 4, 5, 6, 3]).unwrap(), "the unaffable");
}

#[test]
fn chat_template_and_defaults_of_gguf_files() {
    let template = "{% for m in messages %}{{ bos_token }}{{ m['content'] }}{% endfor %}";
    let tokenizer = open(llama_gguf("gpt-2").text("tokenizer.chat_template", template)).unwrap();
    let chat = tokenizer
        .chat_template()
        .unwrap()
        .render(&Chat::new(&[Message::new("user", "hi")]).unwrap())
        .unwrap();
    assert_eq!(chat, "<|begin|>hi");
    let mut writer = Writer::new();
    writer.text("tokenizer.ggml.model", "llama");
    writer.texts("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "▁", "a", "▁a", ""]);
    writer.numbers("tokenizer.ggml.scores", &[0.0, 0.0, 0.0, -3.0, -2.0, -1.0, 0.0]);
    let tokenizer = open(writer.wholes("tokenizer.ggml.token_type", &[2, 3, 3, 1, 1, 1, 5])).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert_eq!(tokenizer.encode("a a").unwrap(), [1, 5, 5]);
    assert_eq!(tokenizer.token(6).unwrap(), "[EMPTY_6]");
}

#[test]
fn files_that_make_no_tokenizer_are_told_why() {
    let base = |kind: &str| Writer::new().text("tokenizer.ggml.model", kind).clone();
    let with = |kind: &str, tokens: &[&str]| base(kind).texts("tokenizer.ggml.tokens", tokens).clone();
    let cases: Vec<(Writer, &str)> = vec![
        (Writer::new(), "the file holds no vocabulary: metadata `tokenizer.ggml.model` is missing"),
        (base("gpt2"), "metadata `tokenizer.ggml.tokens` lists no tokens"),
        (with("rwkv", &["a"]), "tokenizers of kind `rwkv` are not supported"),
        (
            with("gpt2", &["a"]).text("tokenizer.ggml.pre", "abacus").clone(),
            "`abacus` is no known way to cut",
        ),
        (with("gpt2", &["a"]).texts("tokenizer.ggml.merges", &["ab"]).clone(), "the merge `ab` is no pair"),
        (with("gpt2", &["a"]).texts("tokenizer.ggml.merges", &["a a"]).clone(), "the merge `a a` is no pair"),
        (with("gpt2", &["a"]).texts("tokenizer.ggml.merges", &[""]).clone(), "the merge `` is no pair"),
        (
            with("gpt2", &["a"]).whole("tokenizer.ggml.bos_token_id", 1).clone(),
            "expected a token id below 1, found 1",
        ),
        (with("llama", &["a"]).numbers("tokenizer.ggml.scores", &[]).clone(), "expected 1 values, found 0"),
        (with("t5", &["a"]).numbers("tokenizer.ggml.scores", &[f32::NAN]).clone(), "has the score NaN"),
        (
            with("t5", &["a"]).array("tokenizer.ggml.precompiled_charsmap", 0, 5, &[9, 0, 0, 0, 1]).clone(),
            "the table of characters is damaged",
        ),
    ];
    for (writer, expected) in cases {
        let error = open(&writer).unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("vocab.gguf"),
            "expected `{expected}`, found `{error}`"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    for (bytes, expected) in
        [(&b"\xff"[..], "is no SentencePiece model"), (b"", "no piece stands for unknown text")]
    {
        std::fs::write(dir.path().join("tokenizer.model"), bytes).unwrap();
        let error = Tokenizer::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("tokenizer.model"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_text_has_the_same_ids(text in "\\PC{0,24}") {
        let [json, gguf] = both_tokenizers();
        prop_assert_eq!(gguf.encode(&text).unwrap(), json.encode(&text).unwrap());
    }

    /// A damaged file is refused, or gives a tokenizer that works or fails with a message.
    #[test]
    fn damaged_files_never_panic(
        name in prop::sample::select(&MODELS[..]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        for file in [format!("{name}.gguf"), format!("{name}/tokenizer.model")] {
            let mut bytes = std::fs::read(goldens().join(&file)).unwrap();
            for (at, value) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            let gguf = file.ends_with("gguf");
            let path = dir.path().join(if gguf { "x.gguf" } else { "tokenizer.model" });
            std::fs::write(&path, bytes).unwrap();
            if let Ok(tokenizer) = Tokenizer::open(if gguf { &path } else { dir.path() }) {
                let ids = tokenizer.encode("a 🦀  <sep> é").unwrap_or_default();
                let _ = tokenizer.decode(&ids);
            }
        }
    }
}
