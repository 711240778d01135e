//! GGUF files that lie, are damaged or are not served: each is refused with a message of its own, and none makes the
//! reader panic or take memory that the file does not account for.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use std::collections::HashSet;
use std::path::Path;
use tapml_graph::{Bytes, DType, ErrorKind};
use tapml_import::gguf::{Header, MetadataValue, TensorKind};
use tapml_import::testing::gguf::Writer;
use tapml_import::{Checkpoint, gguf};

/// Type numbers of the format: a value that is a text or an array, tensors of f32 and of Q8_0.
const TEXT: u32 = 8;
const ARRAY: u32 = 9;
const F32: u32 = 0;
const Q8_0: u32 = 8;

fn parse(file: &[u8]) -> tapml_graph::Result<(Header, usize)> {
    Header::parse(&Bytes::new(file.to_vec()))
}

fn sample() -> Writer {
    let mut writer = Writer::new();
    writer
        .text("general.architecture", "llama")
        .whole("llama.block_count", 2)
        .number("x", 1.5)
        .flag("y", true);
    writer.texts("names", &["a", "", "bc"]).numbers("scores", &[0.5, -1.0]).wholes("kinds", &[1, -3]);
    writer.tensor("a", &[2, 3], F32, &[0; 24]).tensor("b", &[32], Q8_0, &[1; 34]).tensor(
        "c",
        &[],
        F32,
        &[2; 4],
    );
    writer
}

/// The sample with bytes replaced.
fn with_bytes(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = sample().file();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn a_good_file_is_read_in_the_order_of_its_bytes() {
    let file = sample().file();
    let (header, begin) = parse(&file).unwrap();
    assert_eq!(begin % 32, 0);
    let names: Vec<&str> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let b = &header.tensors[1];
    assert_eq!(
        (b.kind.name(), b.kind.dtype(), &b.shape[..], b.start, b.end),
        ("Q8_0", Some(DType::F32), &[32][..], 32, 66)
    );
    let m = &header.metadata;
    assert_eq!(m.text("general.architecture").unwrap(), Some("llama"));
    assert_eq!((m.whole("llama.block_count").unwrap(), m.number("x").unwrap()), (Some(2), Some(1.5)));
    assert_eq!((m.flag("y").unwrap(), m.flag("z").unwrap()), (Some(true), None));
    assert_eq!(m.texts("names").unwrap().unwrap(), ["a", "", "bc"]);
    assert_eq!(m.numbers("scores").unwrap().unwrap(), [0.5, -1.0]);
    assert_eq!(m.numbers("kinds").unwrap().unwrap(), [1.0, -3.0]);
    assert_eq!(
        m.numbers("general.architecture").unwrap_err().message(),
        "metadata `general.architecture`: expected an array of numbers, found a text of 5 bytes"
    );
    assert!(
        m.wholes("kinds").unwrap_err().to_string().contains("expected an array of whole numbers"),
        "−3 is none"
    );
    assert!(
        matches!(m.get("names"), Some(MetadataValue::Array(names)) if names.len() == 3 && !names.is_empty())
    );
    assert_eq!(m.keys().count(), 7);
    let mut older = sample();
    older.version = 2;
    assert!(parse(&older.file()).is_ok());
}

#[test]
fn every_lie_has_its_own_error() {
    let big = u64::MAX.to_le_bytes();
    let pair = |key: &str, kind: u32, value: &[u8]| Writer::new().pair(key, kind, value).file();
    let array = |kind: u32, count: usize, items: &[u8]| Writer::new().array("k", kind, count, items).file();
    let entry = |shape: &[u64], kind, offset| {
        Writer::new().tensor("a", &[8], F32, &[0; 32]).entry("t", shape, kind, offset).file()
    };
    let mut aligned = Writer::new();
    aligned.alignment = 64;
    aligned.whole("general.alignment", 48).tensor("a", &[1], F32, &[0; 4]);
    let mut twice = Writer::new();
    twice.tensor("a", &[1], F32, &[0; 4]).tensor("a", &[1], F32, &[0; 4]);
    let mut same = Writer::new();
    same.whole("k", 1).whole("k", 2);
    let whole = sample().file();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "4 bytes are needed at byte 0, the file has 0 more"),
        (b"GGML\x03\0\0\0".to_vec(), "expected the letters `GGUF` first"),
        (whole[..6].to_vec(), "4 bytes are needed at byte 4, the file has 2 more"),
        (with_bytes(4, &1u32.to_le_bytes()), "version 1 of the format is not read"),
        (with_bytes(4, &4u32.to_le_bytes()), "version 4 of the format is not read"),
        (with_bytes(4, &3u32.to_be_bytes()), "the file is big-endian (version 3"),
        (with_bytes(8, &big), "18446744073709551615 tensors are claimed"),
        (with_bytes(16, &big), "18446744073709551615 metadata pairs are claimed"),
        (with_bytes(24, &big), "metadata pair 0: 18446744073709551615 bytes of a text are claimed"),
        (pair("k", 13, &[0; 8]), "metadata `k`: expected a value type from 0 to 12, found 13"),
        (pair("k", 7, &[2]), "metadata `k`: expected a truth value, 0 or 1, found 2"),
        (pair("k", TEXT, &big), "metadata `k`: 18446744073709551615 bytes of a text are claimed"),
        (array(4, usize::MAX, &[]), "18446744073709551615 values of type u32 are claimed"),
        (array(TEXT, 9, &[0; 40]), "9 values of type text are claimed, the rest of the file holds at most"),
        (array(TEXT, 2, &[9; 16]), "metadata `k`: 651061555542690057 bytes of a text are claimed"),
        (array(ARRAY, 1, &[0; 12]), "arrays within arrays are not read"),
        (same.file(), "metadata `k` is there twice"),
        (aligned.file(), "expected a power of two below 2^32, found 48"),
        (Writer::new().whole("general.alignment", 0).file(), "expected a power of two below 2^32, found 0"),
        (twice.file(), "tensor `a` is listed twice"),
        (entry(&[1; 5], F32, 32), "tensor `t`: 5 sizes are claimed, at most 4"),
        (entry(&[1], 99, 32), "tensor `t`: element type 99 is not known"),
        (entry(&[1 << 40, 1 << 40], F32, 32), "F32[1099511627776, 1099511627776] has no size that fits"),
        (entry(&[33], Q8_0, 32), "Q8_0[33] has no size that fits this machine in rows of whole blocks of 32"),
        (entry(&[1], F32, u64::MAX), "tensor `t`: it starts at byte 18446744073709551615"),
        (entry(&[1], F32, 4), "tensor `t` starts at byte 4, no multiple of the alignment 32"),
        (entry(&[1], F32, 0), "tensor `a` starts at byte 0, inside `t` that ends at 4"),
        (entry(&[1], F32, 32), "tensor `t` ends at data byte 36, the file has only 32"),
        (entry(&[0], F32, 64), "tensor `t` ends at data byte 64, the file has only 32"),
        (whole[..whole.len() - 40].to_vec(), "the file has only"),
    ];
    let mut seen = HashSet::new();
    for (file, expected) in cases {
        let error = parse(&file).unwrap_err();
        assert!(error.to_string().contains(expected), "expected `{expected}`, found `{error}`");
        assert!(error.hint().is_some(), "{error}");
        assert!(seen.insert(error.to_string()), "{error}");
    }
}

#[test]
fn gaps_are_refused_and_text_is_checked_where_it_is_used() {
    let mut gap = Writer::new();
    gap.tensor("a", &[8], F32, &[0; 32]).tensor("b", &[64], F32, &[0; 256]).entry("c", &[8], F32, 320);
    let error = parse(&[gap.file(), vec![0; 64]].concat()).unwrap_err().to_string();
    assert!(error.contains("bytes 288 to 320 before tensor `c` belong to no tensor"), "{error}");
    let file = Writer::new().pair("k", TEXT, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]).file();
    let error = parse(&file).unwrap().0.metadata.text("k").unwrap_err().to_string();
    assert!(error.contains("metadata `k`: a text of 1 bytes is not UTF-8 from its byte 0 on"), "{error}");
}

#[test]
fn a_type_that_is_not_read_is_listed_but_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    std::fs::write(&path, Writer::new().tensor("a", &[256], 19, &[0; 50]).file()).unwrap();
    let file = gguf::File::open(&path).unwrap();
    assert_eq!((file.entries()[0].kind.name(), file.entries()[0].kind.dtype()), ("IQ1_S", None));
    let error = file.tensor("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hint().unwrap().contains("F32, F16, Q4_0"), "{error}");
    let blocks = Bytes::new(vec![0; 33]);
    assert!(TensorKind::from_name("Q8_0").unwrap().values(&blocks, vec![32]).is_err());
}

/// What a whole checkpoint needs, as metadata of a Llama with one layer.
fn model() -> Writer {
    let mut writer = Writer::new();
    writer
        .text("general.architecture", "llama")
        .whole("llama.block_count", 1)
        .whole("llama.context_length", 16);
    writer.whole("llama.embedding_length", 4).whole("llama.attention.head_count", 1);
    writer.whole("llama.feed_forward_length", 4).number("llama.attention.layer_norm_rms_epsilon", 1e-5);
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
        writer.tensor(&format!("blk.0.{name}.weight"), &[4, 4], F32, &[0; 64]);
    }
    writer.tensor("blk.0.attn_norm.weight", &[4], F32, &[0; 16]);
    writer.tensor("blk.0.ffn_norm.weight", &[4], F32, &[0; 16]).tensor(
        "output_norm.weight",
        &[4],
        F32,
        &[0; 16],
    );
    writer
}

fn open(dir: &Path, file: &[u8]) -> tapml_graph::Result<Checkpoint> {
    let path = dir.join("model.gguf");
    std::fs::write(&path, file).unwrap();
    Checkpoint::open(path)
}

#[test]
fn checkpoints_that_lack_something_are_told_what() {
    let dir = tempfile::tempdir().unwrap();
    let mut good = model();
    good.tensor("token_embd.weight", &[6, 4], F32, &[0; 96]);
    let opened = open(dir.path(), &good.file()).unwrap();
    assert_eq!((opened.vocab(), opened.context(), opened.bos(), opened.eos()), (6, 16, None, &[][..]));
    assert_eq!(opened.model_type(), "llama");
    let cases: Vec<(Writer, &str)> = vec![
        (model(), "tensor `token_embd.weight` is missing"),
        (
            Writer::new(),
            "metadata `general.architecture`: expected the name of an architecture, found nothing",
        ),
        (
            Writer::new().text("general.architecture", "abacus").clone(),
            "architecture `abacus` is not supported",
        ),
        (
            Writer::new()
                .text("general.architecture", "llama")
                .tensor("token_embd.weight", &[6, 4], F32, &[0; 96])
                .clone(),
            "metadata `llama.embedding_length` is missing",
        ),
        (
            good.clone().whole("llama.attention.value_length", 3).clone(),
            "expected 4, the size of a key's head, found 3",
        ),
        (
            good.clone().text("llama.rope.scaling.type", "wavy").clone(),
            "scaling method `wavy` is not supported",
        ),
        (
            good.clone().wholes("llama.attention.head_count_kv", &[1, 2]).clone(),
            "layers with 1 and with 2 differ",
        ),
        (good.clone().whole("llama.attention.head_count_kv", 2).clone(), "`num_key_value_heads`"),
        (
            good.clone().whole("tokenizer.ggml.bos_token_id", 6).clone(),
            "`bos_token_id`: expected a token id below 6",
        ),
        (
            good.clone().whole("split.count", 2).whole("split.no", 1).clone(),
            "this is file 2 of a model split over 2",
        ),
        (good.clone().whole("split.count", 2).clone(), "the model is split over 2 files"),
        (good.clone().whole("llama.expert_count", 8).clone(), "8 experts in a GGUF file are not supported"),
    ];
    for (writer, expected) in cases {
        let error = open(dir.path(), &writer.file()).unwrap_err();
        assert!(error.to_string().contains(expected), "expected `{expected}`, found `{error}`");
        assert!(error.to_string().contains("model.gguf"), "{error}");
    }
    let missing = Checkpoint::open(dir.path().join("other.gguf")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Io);
}

#[test]
fn a_split_model_is_read_from_its_first_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |n: u32| dir.path().join(format!("m-0000{n}-of-00002.gguf"));
    let mut first = model();
    first.whole("split.count", 2).whole("split.no", 0).whole("split.tensors.count", 11);
    let mut second = Writer::new();
    second.whole("split.count", 2).whole("split.no", 1).tensor("token_embd.weight", &[6, 4], F32, &[0; 96]);
    std::fs::write(path(1), first.file()).unwrap();
    let error = Checkpoint::open(path(1)).unwrap_err().to_string();
    assert!(error.contains("m-00002-of-00002.gguf is missing"), "{error}");
    std::fs::write(path(2), second.file()).unwrap();
    assert_eq!(Checkpoint::open(path(1)).unwrap().vocab(), 6);
    let error = Checkpoint::open(path(2)).unwrap_err().to_string();
    assert!(error.contains("this is file 2 of a model split over 2"), "{error}");
    std::fs::write(path(2), second.tensor("output_norm.weight", &[4], F32, &[0; 16]).file()).unwrap();
    let error = Checkpoint::open(path(1)).unwrap_err().to_string();
    assert!(error.contains("tensor `output_norm.weight` is in"), "{error}");
    std::fs::write(path(2), first.file()).unwrap();
    let error = Checkpoint::open(path(1)).unwrap_err().to_string();
    assert!(error.contains("expected file 2 of 2, found file 1"), "{error}");
}

/// A damaged file is refused or read; whatever its header claims lies within the file.
fn judge(file: &[u8]) -> Result<(), TestCaseError> {
    let Ok((header, begin)) = parse(file) else { return Ok(()) };
    for entry in &header.tensors {
        prop_assert!(begin + entry.end <= file.len());
        prop_assert_eq!(entry.kind.byte_len(&entry.shape), Some(entry.end - entry.start));
    }
    let keys: Vec<String> = header.metadata.keys().map(str::to_string).collect();
    for key in keys {
        let m = &header.metadata;
        let _ = (m.text(&key), m.whole(&key), m.flag(&key), m.bytes(&key), m.flags(&key));
        if let Ok(Some(texts)) = m.texts(&key) {
            prop_assert!(texts.len() * 8 <= file.len());
        }
        if let Ok(Some(numbers)) = m.numbers(&key) {
            prop_assert!(numbers.len() <= file.len());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut file = sample().file();
        for (at, value) in edits {
            let at = at.index(file.len());
            file[at] = value;
        }
        if cut {
            file.truncate(keep.index(file.len()));
        }
        judge(&file)?;
    }

    #[test]
    fn numbers_at_the_edges_never_panic(
        at in any::<prop::sample::Index>(),
        value in prop_oneof![Just(u64::MAX), Just(u64::MAX / 2), Just(1 << 63), Just(1 << 32), Just(0u64), 0u64..300],
    ) {
        let file = sample().file();
        let at = at.index(file.len() - 8);
        judge(&with_bytes(at, &value.to_le_bytes()))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    /// The same for whole checkpoints, whose metadata and tensors are used.
    #[test]
    fn damaged_checkpoints_are_refused_or_opened(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut file = model().tensor("token_embd.weight", &[6, 4], F32, &[0; 96]).file();
        // The header: zeros behind it are the weights.
        let end = file.len() - 800;
        for (at, value) in edits {
            let at = at.index(end);
            file[at] = value;
        }
        let _ = open(dir.path(), &file);
    }
}
