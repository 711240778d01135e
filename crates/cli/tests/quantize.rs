//! Quantised models through the commands: carved, checked, migrated, diagnosed; written, read again, compared.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, json, prompts, stderr, tapml};
use std::path::Path;

fn report(folder: &Path, args: &[&str], prompts: Option<&Path>) -> serde_json::Value {
    let mut command = tapml(folder);
    command.args(args);
    if let Some(prompts) = prompts {
        command.arg("--prompts").arg(prompts);
    }
    json(&mut command, 0)
}

#[test]
fn a_suite_of_a_quantised_model_finds_its_words_in_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = prompts(folder.path());
    let carve = ["carve", &draft(), "--quantize", "q4", "--steps", "1", "--out", "q4.suite"];
    report(folder.path(), &carve, Some(&prompts));
    let found = report(folder.path(), &["check", "q4.suite", "--target", "emulator"], None);
    assert_eq!(found["failed"], 0);
    let ops: Vec<&str> =
        found["ops"].as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect();
    for op in ["embedding", "linear", "gated_linear"] {
        assert!(ops.contains(&op), "{ops:?}");
    }
    assert!(!ops.contains(&"dequantize"), "{ops:?}");
}

#[test]
fn a_quantised_model_migrates_and_nothing_is_diagnosed() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = prompts(folder.path());
    let devices = report(folder.path(), &["device", "list"], None);
    let vulkan = devices["devices"].as_array().unwrap().iter().any(|d| d["platform"] == "vulkan");
    if !vulkan {
        tapml_testing::skip("vulkan", "no adapter");
    }
    for (target, scheme) in [
        ("emulator", "q4"),
        ("emulator", "q4a,embedding=q4"),
        ("emulator", "fp8,embedding=fp8,head=fp8"),
        ("vulkan", "q4"),
        ("vulkan", "fp8"),
    ] {
        if target == "vulkan" && !vulkan {
            continue;
        }
        let migrate = ["migrate", &draft(), "--quantize", scheme, "--target", target, "--steps", "1"];
        let found = report(folder.path(), &migrate, Some(&prompts));
        assert_eq!(found["verdict"], "accepted", "{scheme} on {target}");
        assert_eq!(found["coverage"]["calls"], found["coverage"]["checked"], "{scheme} on {target}");
    }
    let diagnose = ["diagnose", &draft(), "--quantize", "q4", "--target", "emulator", "--steps", "1"];
    let found = report(folder.path(), &diagnose, Some(&prompts));
    assert_eq!(found["faults"].as_array().unwrap().len(), 0, "{found}");
}

#[test]
fn a_written_checkpoint_generates_what_quantising_on_the_way_does() {
    let folder = tempfile::tempdir().unwrap();
    let text = |model: &str, more: &[&str]| {
        let args = [
            "generate",
            model,
            "--target",
            "cpu",
            "--temperature",
            "0",
            "--max-tokens",
            "12",
            "--prompt",
            "It was",
        ];
        report(folder.path(), &[&args, more].concat(), None)["text"].clone()
    };
    let written = report(folder.path(), &["quantize", &draft(), "--scheme", "q4", "--out", "stored"], None);
    assert!(written["weight_bytes"].as_u64().unwrap() * 2 < written["source_weight_bytes"].as_u64().unwrap());
    assert_eq!(text("stored", &[]), text(&draft(), &["--quantize", "q4"]));
    let eval = |model: &str, more: &[&str]| {
        let args = ["eval", model, "--reference", &draft(), "--tokens", "300"];
        report(folder.path(), &[&args, more].concat(), None)
    };
    let four = eval("stored", &[]);
    let eight = eval(&draft(), &["--quantize", "q8"]);
    let same = eval(&draft(), &[]);
    let kl = |report: &serde_json::Value| report["kl"].as_f64().unwrap();
    assert!(kl(&same) == 0.0 && same["top1_agreement"] == 1.0, "{same}");
    assert!(kl(&eight) > 1e-6 && kl(&eight) < 2e-3, "{eight}");
    assert!(kl(&four) > 10.0 * kl(&eight) && kl(&four) < 0.15, "{four}");
    let again = stderr(tapml(folder.path()).args(["quantize", &draft(), "--out", "stored"]), 2);
    assert!(again.contains("holds a model already"), "{again}");
    let unknown =
        stderr(tapml(folder.path()).args(["generate", &draft(), "--quantize", "q3", "--prompt", "a"]), 2);
    assert!(unknown.contains("unknown quantisation `q3`"), "{unknown}");
}
