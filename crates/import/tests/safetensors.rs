//! The safetensors reader against hostile files: each lie has its own error, nothing panics, and whatever the format's
//! own library accepts is read the same.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tapml_graph::{DType, Tensor};
use tapml_import::safetensors::{File, Header, write};

/// A file of this header and this many data bytes.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..data).map(|i| i as u8));
    bytes
}

fn header_of(entries: &[(&str, &str, &[u64], [u64; 2])]) -> String {
    let map: serde_json::Map<String, Value> = entries
        .iter()
        .map(|(name, dtype, shape, offsets)| {
            (name.to_string(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}))
        })
        .collect();
    Value::Object(map).to_string()
}

fn sample() -> Vec<u8> {
    file(&header_of(&[("a", "F32", &[2, 3], [0, 24]), ("b", "BF16", &[5], [24, 34])]), 34)
}

#[test]
fn reads_names_types_shapes_and_bytes() {
    let (header, begin) = Header::parse(&sample()).unwrap();
    let names: Vec<&str> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(header.tensors[1].shape, [5]);
    assert_eq!(header.tensors[1].stored.dtype(), Some(DType::BF16));
    assert_eq!(sample().len() - begin, 34);
}

#[test]
fn every_lie_has_its_own_error() {
    let good = sample();
    let mut long = good.clone();
    long[..8].copy_from_slice(&(good.len() as u64).to_le_bytes());
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut bound = good.clone();
    bound[..8].copy_from_slice(&100_000_001u64.to_le_bytes());
    let mut latin = good.clone();
    latin[10] = 0xff;
    let mut trailing = good.clone();
    trailing.push(0);
    let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "the file has 0 bytes"),
        (good[..7].to_vec(), "the file has 7 bytes"),
        (long, "bytes, the file has"),
        (huge, "the header claims 18446744073709551615 bytes, at most 100000000"),
        (bound, "the header claims 100000001 bytes, at most"),
        (latin, "not UTF-8 from its byte 2"),
        (file("{", 0), "EOF while parsing"),
        (file("[]", 0), "expected an object of tensors by name"),
        (file(r#"{"a":{"dtype":"F32","shape":[1]}}"#, 4), "tensor `a`: missing field `data_offsets`"),
        (file(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4), "tensor `a`: invalid value"),
        (file(r#"{"__metadata__":{"a":1}}"#, 0), "invalid type"),
        (file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), "duplicate field `__metadata__`"),
        (file(twice, 2), "tensor `a` is listed twice"),
        (file(&header_of(&[("a", "F31", &[1], [0, 4])]), 4), "tensor `a`: unknown element type `F31`"),
        (file(&header_of(&[("a", "F32", &[2], [0, 4])]), 4), "F32[2] needs 8 bytes, the header gives it 4"),
        (file(&header_of(&[("a", "F32", &[1], [4, 0])]), 4), "end at 0, before their start 4"),
        (file(&header_of(&[("a", "F4", &[3], [0, 2])]), 2), "no size in whole bytes"),
        (
            file(&header_of(&[("a", "F32", &[1 << 40, 1 << 40], [0, 4])]), 4),
            "no size in whole bytes that fits",
        ),
        (
            file(&header_of(&[("a", "U8", &[4], [0, 4]), ("b", "U8", &[4], [2, 6])]), 6),
            "tensor `b` starts at byte 2, inside `a` that ends at 4",
        ),
        (
            file(&header_of(&[("a", "U8", &[4], [0, 4]), ("b", "U8", &[4], [6, 10])]), 10),
            "bytes 4 to 6 before tensor `b` belong to no tensor",
        ),
        (good[..good.len() - 3].to_vec(), "tensor `b` ends at data byte 34, the file has only 31"),
        (trailing, "1 bytes after the last tensor"),
    ];
    let mut seen = std::collections::HashSet::new();
    for (bytes, expected) in cases {
        let error = Header::parse(&bytes).unwrap_err();
        assert!(error.to_string().contains(expected), "expected `{expected}`, found `{error}`");
        assert!(error.hint().is_some() || error.to_string().contains("unknown element type"), "{error}");
        assert!(seen.insert(error.to_string()), "{error}");
        assert!(safetensors::SafeTensors::deserialize(&bytes).is_err(), "{expected}");
    }
}

#[test]
fn errors_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    std::fs::write(&path, &sample()[..20]).unwrap();
    let error = File::open(&path).unwrap_err().to_string();
    assert!(error.contains("x.safetensors: the header claims"), "{error}");
    std::fs::write(&path, []).unwrap();
    assert!(File::open(&path).unwrap_err().to_string().contains("has 0 bytes"));
    assert!(
        File::open(dir.path()).unwrap_err().to_string().contains("expected a regular file, found a folder")
    );
    let missing = File::open(&dir.path().join("y")).unwrap_err();
    assert_eq!(missing.kind(), tapml_graph::ErrorKind::Io);
}

#[test]
fn written_files_are_read_back_and_by_the_formats_own_library() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.safetensors");
    let tensors = [
        ("empty", Tensor::from_f32(vec![0, 3], vec![]).unwrap()),
        ("half", Tensor::from_f64(DType::F16, vec![3], &[1.0, 2.0, -3.5]).unwrap()),
        ("ids", Tensor::from_u32(vec![2, 1], vec![7, 9]).unwrap()),
    ];
    let metadata = BTreeMap::from([("made_by".to_string(), "a \"test\"".to_string())]);
    write(&path, &tensors, &metadata).unwrap();
    let file = File::open(&path).unwrap();
    assert_eq!(file.metadata(), &metadata);
    for (name, tensor) in &tensors {
        let read = file.tensor(name).unwrap();
        assert_eq!((read.dtype(), read.shape()), (tensor.dtype(), tensor.shape()));
        assert_eq!(&read.bytes()[..], &tensor.bytes()[..]);
    }
    assert!(file.tensor("other").is_err());
    let bytes = std::fs::read(&path).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.tensor("half").unwrap().data(), &tensors[1].1.bytes()[..]);
    let left: Vec<PathBuf> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [path]);
    let twice = [tensors[0].clone(), tensors[0].clone()];
    assert!(write(&dir.path().join("twice"), &twice, &metadata).is_err());
    let nowhere = dir.path().join("none").join("x");
    assert_eq!(write(&nowhere, &tensors, &metadata).unwrap_err().kind(), tapml_graph::ErrorKind::Io);
}

#[test]
fn a_type_that_is_not_computed_with_is_listed_but_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    std::fs::write(&path, file(&header_of(&[("mask", "F8_E5M2", &[4], [0, 4])]), 4)).unwrap();
    let opened = File::open(&path).unwrap();
    assert_eq!(opened.entries()[0].stored.name(), "F8_E5M2");
    let error = opened.tensor("mask").unwrap_err();
    assert_eq!(error.kind(), tapml_graph::ErrorKind::Unsupported);
}

/// Compares with the format's own library: both refuse, or both read the same tensors.
fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = Header::parse(bytes);
    let theirs = safetensors::SafeTensors::deserialize(bytes);
    let (Ok((header, begin)), Ok(theirs)) = (&ours, &theirs) else {
        // A name listed twice is refused here and read as its last entry there.
        let twice = matches!(&ours, Err(e) if e.to_string().contains("listed twice"));
        prop_assert!(twice || (ours.is_err() && theirs.is_err()), "{:?} {:?}", ours, theirs.err());
        return Ok(());
    };
    prop_assert_eq!(header.tensors.len(), theirs.len());
    for entry in &header.tensors {
        let view = theirs.tensor(&entry.name).unwrap();
        prop_assert_eq!(view.shape(), &entry.shape[..]);
        prop_assert_eq!(view.data(), &bytes[begin + entry.start..begin + entry.end]);
    }
    Ok(())
}

/// A piece of header text: valid entries, numbers at the edges, broken JSON.
fn piece() -> impl Strategy<Value = String> {
    let number = prop_oneof![0u64..12, Just(u64::MAX), Just(u64::MAX / 2), Just(1 << 32)];
    let numbers = prop::collection::vec(number, 0..3);
    let dtype = prop_oneof![Just("F32"), Just("BF16"), Just("U8"), Just("F4"), Just("BOOL"), Just("X")];
    let entry = ("[a-c]", dtype, numbers.clone(), numbers).prop_map(|(name, dtype, shape, offsets)| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":{offsets:?}}}"#)
    });
    prop_oneof![8 => entry, 1 => "[ -~]{0,8}", 1 => Just(r#""__metadata__":{"k":"v"}"#.to_string())]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_headers_are_judged_like_the_formats_own_library(
        pieces in prop::collection::vec(piece(), 0..4),
        data in 0usize..16,
    ) {
        agree(&file(&format!("{{{}}}", pieces.join(",")), data))?;
    }

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = sample();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(keep.index(bytes.len()));
        }
        agree(&bytes)?;
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        agree(&bytes)?;
    }

    #[test]
    fn tiling_headers_are_accepted(sizes in prop::collection::vec(0u64..5, 1..6)) {
        let mut end = 0;
        let names: Vec<String> = (0..sizes.len()).map(|i| format!("t{i}")).collect();
        let entries: Vec<(&str, &str, [u64; 1], [u64; 2])> = sizes.iter().zip(&names).map(|(&size, name)| {
            let start = end;
            end += size * 2;
            (name.as_str(), "F16", [size], [start, end])
        }).collect();
        let entries: Vec<(&str, &str, &[u64], [u64; 2])> =
            entries.iter().map(|(n, d, s, o)| (*n, *d, &s[..], *o)).collect();
        let bytes = file(&header_of(&entries), end as usize);
        prop_assert!(Header::parse(&bytes).is_ok());
        agree(&bytes)?;
    }
}
