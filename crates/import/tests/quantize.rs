//! Quantised models through the public API: what is written opens as it is and holds what quantising in memory gives;
//! configurations that are not served are errors that say what is.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::json;
use std::path::Path;
use tapml_graph::{DType, ErrorKind, Graph, Model, Tensor, fuse};
use tapml_import::Checkpoint;
use tapml_import::quantize::{Scheme, Written, derive, quantize};
use tapml_import::testing::TinyLlama;

fn scheme(text: &str) -> Scheme {
    text.parse().unwrap()
}

/// A Llama whose rows are whole groups of 32, but for those of `down_proj`.
fn tiny(dir: &Path, extra: serde_json::Value) {
    TinyLlama { hidden: 64, head_dim: 16, intermediate: 72, extra, ..TinyLlama::default() }
        .write(dir)
        .unwrap();
}

fn kinds(graph: &Graph) -> Vec<&'static str> {
    fuse(graph).unwrap().op_kinds().into_iter().map(|(name, _)| name).collect()
}

fn assert_same(a: &Model, b: &Model) {
    assert_eq!(a.graph().to_text(), b.graph().to_text());
    for (_, weight) in a.graph().weights() {
        let (a, b) = (a.weight(&weight.name).unwrap(), b.weight(&weight.name).unwrap());
        assert_eq!(a.bytes()[..], b.bytes()[..], "{}", weight.name);
    }
}

fn write(from: &Path, scheme: &Scheme, out: &Path) -> tapml_graph::Result<Written> {
    tapml_import::quantize::write(from, scheme, out, &|| Ok(()))
}

#[test]
fn what_is_written_opens_as_it_is() {
    for (text, tied) in [
        ("q4", true),
        ("q8,head=keep,embedding=keep", false),
        ("fp8", false),
        ("q4,embedding=fp8,head=q8", false),
        ("mxfp4", true),
        ("q8,embedding=mxfp4,head=q4", false),
    ] {
        let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        TinyLlama { hidden: 64, head_dim: 16, intermediate: 72, tied, ..TinyLlama::default() }
            .write(from.path())
            .unwrap();
        let plain = Checkpoint::open(from.path()).unwrap();
        let (expected, kept) = quantize(plain.model(), &scheme(text)).unwrap();
        let written = write(from.path(), &scheme(text), out.path()).unwrap();
        assert_eq!(written.kept, kept);
        let parameters = |graph: &Graph| graph.summary().unwrap().parameters;
        assert_eq!(parameters(expected.graph()), parameters(plain.graph()));
        assert!(kept.iter().any(|k| k.weight.ends_with("down_proj.weight")), "{kept:?}");
        assert!(written.after < written.before);
        let opened = Checkpoint::open(out.path()).unwrap();
        assert!(opened.unused_tensors().is_empty(), "{:?}", opened.unused_tensors());
        assert!(kinds(opened.graph()).contains(&"gated_linear"));
        assert!(opened.graph().weights().any(|(_, w)| w.ty.dtype.packing().is_some()));
        assert_same(&expected.with_graph(opened.graph().clone()).unwrap(), opened.model());
        let error = write(from.path(), &scheme(text), out.path()).unwrap_err();
        assert!(error.to_string().contains("holds a model already"), "{error}");
        let again = tempfile::tempdir().unwrap();
        assert_eq!(
            write(out.path(), &scheme(text), again.path()).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        let error = quantize(opened.model(), &scheme("q4,embedding=keep,head=keep")).unwrap_err();
        assert!(error.to_string().contains("quantised already"), "{error}");
    }
}

#[test]
fn stacks_of_experts_and_transposed_matrices_survive_a_folder() {
    for (name, operators) in [("mixtral_tiny", &["expert_gated_linear"][..]), ("gpt2_tiny", &["linear"])] {
        let out = tempfile::tempdir().unwrap();
        let plain = Checkpoint::open(tapml_testing::golden(name)).unwrap();
        let (expected, _) = quantize(plain.model(), &scheme("q8,embedding=q4,head=q4")).unwrap();
        write(&tapml_testing::golden(name), &scheme("q8,embedding=q4,head=q4"), out.path()).unwrap();
        let opened = Checkpoint::open(out.path()).unwrap();
        assert_same(&expected.with_graph(opened.graph().clone()).unwrap(), opened.model());
        let found = kinds(opened.graph());
        assert!(operators.iter().all(|op| found.contains(op)), "{name}: {found:?}");
    }
}

#[test]
fn packed_weights_of_a_graph_are_made_from_the_weights_of_their_names() {
    let from = tempfile::tempdir().unwrap();
    tiny(from.path(), json!({}));
    let plain = Checkpoint::open(from.path()).unwrap();
    let (quantized, _) = quantize(plain.model(), &scheme("q4")).unwrap();
    let graph = fuse(quantized.graph()).unwrap();
    let derived = derive(plain.model(), graph.clone()).unwrap();
    assert_same(&quantized.with_graph(graph).unwrap(), &derived);
}

#[test]
fn methods_and_keys_that_are_not_read_are_errors_that_say_what_is() {
    let gptq = |key: &str, value: serde_json::Value| {
        let mut config = json!({"quant_method": "gptq", "bits": 4, "group_size": 32});
        config[key] = value;
        config
    };
    let awq = |key: &str, value: serde_json::Value| {
        let mut config = json!({"quant_method": "awq", "bits": 4, "group_size": 32});
        config[key] = value;
        config
    };
    for (config, expected) in [
        (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), "quantised by `bitsandbytes`"),
        (json!({"quant_method": "fp8", "fmt": "e5m2"}), "numbers of `e5m2`"),
        (json!({"quant_method": "bitnet"}), "quantised by `bitnet`"),
        (gptq("bits", json!(3)), "3 bits"),
        (gptq("checkpoint_format", json!("marlin")), "`marlin`"),
        (awq("bits", json!(8)), "8 bits"),
        (awq("version", json!("gemv")), "layout `gemv`"),
        (awq("zero_point", json!(false)), "without zero points"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        tiny(dir.path(), json!({ "quantization_config": config }));
        let error = Checkpoint::open(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("quantization_config."), "{error}");
        assert!(error.hint().unwrap().contains("`gptq`"), "{error}");
    }
}

#[test]
fn own_checkpoints_of_other_versions_or_with_other_bytes_are_refused() {
    let (from, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    tiny(from.path(), json!({}));
    write(from.path(), &scheme("q4"), out.path()).unwrap();
    let path = out.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        change(&mut config["quantization_config"]);
        std::fs::write(&path, config.to_string()).unwrap();
        Checkpoint::open(out.path()).unwrap_err()
    };
    for version in [1, 2, 4] {
        let error = with(&|config| config["version"] = json!(version));
        assert!(error.to_string().contains(&format!("version {version}, read is 3")), "{error}");
        assert!(error.hint().unwrap().contains("tapml quantize"), "{error}");
    }
    let name = "model.layers.0.self_attn.q_proj.weight";
    let error = with(&|config| config["weights"][name] = json!("int8g32"));
    assert!(error.to_string().contains("expected u8[") && error.to_string().contains(name), "{error}");
    for wrong in [json!("int4"), json!(4), json!("int4g12"), json!("f16")] {
        let error = with(&|config| config["weights"][name] = wrong.clone());
        assert!(error.to_string().contains("int4g32"), "{error}");
    }
    let error = with(&|config| config["weights"] = json!([]));
    assert!(error.to_string().contains("weights"), "{error}");
}

/// Copies a golden checkpoint with its configuration and tensors changed.
fn change_checkpoint(
    name: &str,
    config: impl Fn(&mut serde_json::Value),
    tensor: impl Fn(&str, tapml_graph::Tensor) -> Option<tapml_graph::Tensor>,
) -> tempfile::TempDir {
    use tapml_import::safetensors::{File, write};
    let dir = tempfile::tempdir().unwrap();
    let from = tapml_testing::golden(name);
    let mut json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config(&mut json);
    std::fs::write(dir.path().join("config.json"), json.to_string()).unwrap();
    let file = File::open(&from.join("model.safetensors")).unwrap();
    let tensors =
        file.entries().iter().filter_map(|e| Some((&*e.name, tensor(&e.name, file.load(e).unwrap())?)));
    let tensors: Vec<_> = tensors.collect();
    write(&dir.path().join("model.safetensors"), &tensors, &Default::default()).unwrap();
    dir
}

#[test]
fn packed_tensors_that_do_not_fit_are_named() {
    let open = |dir: tempfile::TempDir| Checkpoint::open(dir.path()).unwrap_err().to_string();
    let group = |value: u32| {
        move |json: &mut serde_json::Value| json["quantization_config"]["group_size"] = json!(value)
    };
    for (name, part) in [("llama_tiny_gptq", "scales"), ("llama_tiny_awq", "scales")] {
        let error = open(change_checkpoint(name, group(8), |_, t| Some(t)));
        assert!(error.contains(part) && error.contains("expected f16[8, "), "{error}");
        let error =
            open(change_checkpoint(name, |_| {}, |name, t| (!name.ends_with("q_proj.qzeros")).then_some(t)));
        assert!(error.contains("q_proj.qzeros") && error.contains("is missing"), "{error}");
    }
    // Columns in another order than their groups.
    let error = open(change_checkpoint(
        "llama_tiny_gptq",
        |_| {},
        |name, t| {
            if name.ends_with("o_proj.g_idx") {
                let turned: Vec<f64> = t.to_f64().into_iter().rev().collect();
                Some(tapml_graph::Tensor::from_f64(t.dtype(), t.shape().to_vec(), &turned).unwrap())
            } else {
                Some(t)
            }
        },
    ));
    assert!(error.contains("o_proj.weight") && error.contains("desc_act"), "{error}");
    // One expert of a stack that is not packed.
    let error = open(change_checkpoint(
        "mixtral_tiny_awq",
        |_| {},
        |name, t| (!name.contains("experts.1.w1.qweight")).then_some(t),
    ));
    assert!(error.contains("some not"), "{error}");
}

/// Copies the golden checkpoint in fp8 with the bytes of its files changed, where `at` is the byte of a tensor's first number.
fn rewritten(
    name: &str,
    change: impl Fn(&mut String, &mut Vec<u8>, &dyn Fn(&str) -> usize),
) -> tempfile::TempDir {
    let (dir, from) = (tempfile::tempdir().unwrap(), tapml_testing::golden(name));
    let mut config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let mut bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let file = tapml_import::safetensors::File::open(&from.join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let at = |name: &str| header + file.entries().iter().find(|e| e.name == name).unwrap().start;
    change(&mut config, &mut bytes, &at);
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

fn rename_bytes(bytes: &mut [u8], from: &str, to: &str) {
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn numbers_of_fp8_are_kept_to_the_bit() {
    let from = tapml_testing::golden("llama_tiny_fp8");
    let opened = Checkpoint::open(&from).unwrap();
    assert!(opened.notes().is_empty() && opened.unused_tensors().is_empty(), "{:?}", opened.notes());
    let file = tapml_import::safetensors::File::open(&from.join("model.safetensors")).unwrap();
    let name = "model.layers.0.mlp.up_proj.weight";
    let weight = opened.model().weight(name).unwrap();
    assert_eq!(weight.dtype().to_string(), "e4m3g32");
    let sections = weight.sections().unwrap();
    assert_eq!(sections[0][..], file.tensor(name).unwrap().bytes()[..]);
    // Blocks of 40 rows and 32 columns; the last has 16 rows.
    let scales = Tensor::new(DType::F16, vec![96 * 2], sections[1].clone()).unwrap().to_f64();
    let blocks = file.tensor(&format!("{name}_scale_inv")).unwrap().to_f64();
    assert_eq!((scales.len(), blocks.len()), (96 * 2, 3 * 2));
    for (i, scale) in scales.iter().enumerate() {
        assert_eq!(*scale, 256.0 * blocks[i / 2 / 40 * 2 + i % 2], "{i}");
    }
    let parameters = opened.graph().summary().unwrap().parameters;
    assert_eq!(parameters, 67 * 64 * 2 + 64 * 3 + 2 * (4096 + 2048 + 96) + 3 * 6144);
}

#[test]
fn fp8_that_cannot_be_read_says_why() {
    let open = |dir: &tempfile::TempDir| Checkpoint::open(dir.path()).unwrap_err();
    let weight = "model.layers.0.self_attn.o_proj.weight";
    let nan = rewritten("llama_tiny_fp8", |_, bytes, at| bytes[at(weight) + 64 + 3] = 0xff);
    let error = open(&nan).to_string();
    assert!(error.contains("o_proj.weight") && error.contains("element [1, 3] is NaN"), "{error}");
    // Whoever does not look finds it when the weight is made.
    let options = tapml_import::ImportOptions { check_finite: false, ..Default::default() };
    let unread = Checkpoint::open_with(nan.path(), &options).unwrap();
    let error = unread.model().weight(weight).unwrap_err().to_string();
    assert!(error.contains("element [1, 3] is NaN"), "{error}");

    let odd = rewritten("llama_tiny_fp8", |config, _, _| *config = config.replace("40,", "31,"));
    let error = open(&odd).to_string();
    assert!(error.contains("bf16[2, 2]: expected scales [3, 2] for a matrix [64, 64]"), "{error}");
    let none = rewritten("llama_tiny_fp8", |_, bytes, _| {
        rename_bytes(
            bytes,
            "layers.0.mlp.down_proj.weight_scale_inv",
            "layers.0.mlp.down_proj.weight_scale_nil",
        );
    });
    let error = open(&none).to_string();
    assert!(error.contains("there is neither `model.layers.0.mlp.down_proj.weight_scale_inv`"), "{error}");
    let integers = rewritten("llama_tiny_fp8", |config, _, _| *config = config.replace("e4m3", "e5m2"));
    assert!(open(&integers).to_string().contains("numbers of `e5m2`"));

    // Rows with scales in f32.
    let name = "mixtral_tiny_fp8_rows";
    let scale = "model.layers.0.self_attn.k_proj.weight_scale";
    let put = |scale: &'static str, value: f32| {
        rewritten(name, move |_, bytes, at| {
            let at = at(scale) + 4 * 3;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        })
    };
    let rounded = Checkpoint::open(put(scale, 0.001_234_567).path()).unwrap().notes();
    assert!(rounded.len() == 1 && rounded[0].contains("rounded from f32 to f16"), "{rounded:?}");
    for (value, expected) in
        [(1e-9f32, "beyond f16"), (1e4, "beyond f16"), (f32::NAN, "holds NaN"), (-1.0, "holds -1")]
    {
        let error = open(&put(scale, value)).to_string();
        assert!(error.contains("k_proj") && error.contains(expected), "{error}");
    }
}
