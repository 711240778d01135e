//! The list of published models: every one is planned, its size is the published one, and the page is current.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, json, stderr, tapml};
use serde_json::Value;
use std::collections::BTreeSet;

/// Largest distance of a graph's number of parameters from the published one.
const TOLERANCE: f64 = 0.03;

fn list() -> String {
    tapml_testing::root().join("docs/data/models.tsv").display().to_string()
}

#[test]
fn every_listed_model_is_planned_and_the_page_is_current() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("models.md");
    let mut command = tapml(folder.path());
    command.args(["compile", "--dry-run", "--list", &list(), "--markdown"]).arg(&page);
    let report = json(&mut command, 1);
    let models = report["models"].as_array().unwrap();
    assert!(models.len() >= 120, "{} models", models.len());

    let mut wrong = Vec::new();
    for model in models {
        let name = model["model"].as_str().unwrap();
        let published = model["published_parameters"].as_f64().unwrap();
        let distance = model["size"]["parameters"].as_f64().map_or(0.0, |p| p / published - 1.0);
        if distance.abs() > TOLERANCE {
            let percent = 100.0 * distance;
            wrong.push(format!("{name}: {percent:+.1} % off the published {published} parameters"));
        }
        for target in model["targets"].as_array().unwrap() {
            if target["f16"]["state"] == "failed" {
                wrong.push(format!("{name} on {}: {}", target["target"], target["f16"]["reason"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let listed: BTreeSet<&str> = models.iter().map(|m| m["model_type"].as_str().unwrap()).collect();
    let missing: Vec<&str> = model_types().into_iter().filter(|t| !listed.contains(t)).collect();
    assert!(missing.is_empty(), "docs/data/models.tsv has no model of {}", missing.join(", "));
    tapml_testing::expect_file("docs/reference/models.md", &std::fs::read_to_string(page).unwrap());
}

/// Every `model_type` that is supported.
fn model_types() -> Vec<&'static str> {
    tapml::import::ARCHITECTURES.iter().flat_map(|a| a.model_types).copied().collect()
}

#[test]
fn one_model_on_one_target() {
    let folder = tempfile::tempdir().unwrap();
    let compile = |target: &str, more: &[&str], code: i32| {
        let arguments = ["compile", &draft(), "--dry-run", "--target", target];
        json(tapml(folder.path()).args(arguments).args(more), code)
    };
    let report = compile("webgpu", &[], 0);
    assert_eq!(report["schema"], 1);
    let model = &report["models"][0];
    assert_eq!(model["published_parameters"], Value::Null);
    assert!((1_500_000..1_520_000).contains(&model["size"]["parameters"].as_u64().unwrap()), "{model}");
    assert_eq!(model["size"]["positions"], 512);
    assert_eq!(model["targets"][0]["f16"]["state"], "fits");
    let arguments = ["compile", &draft(), "--dry-run", "--target", "webgpu"];
    let output = tapml(folder.path()).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(" 1.51 M ") && !text.contains("0.00 B"), "{text}");
    let report = compile("webgpu", &["--memory", "0.001"], 1);
    let fit = &report["models"][0]["targets"][0]["f16"];
    assert_eq!((fit["state"].as_str(), fit["limit"].as_str()), (Some("too_big"), Some("memory")));
    assert_eq!(fit["offered"], 1_000_000);

    let report = compile("webgpu", &["--quantize", "q4,embedding=q4,head=q4"], 0);
    assert_eq!(report["quantize"], "q4,embedding=q4,head=q4");
    let target = &report["models"][0]["targets"][0];
    let quantized = &target["quantized"];
    assert_eq!(quantized["fit"]["state"], "fits");
    let weights = |plan: &Value| plan["memory"]["weights"].as_u64().unwrap();
    assert!(2 * weights(quantized) < weights(target), "{target}");
    assert!(quantized["bytes_per_token"].as_u64().unwrap() < weights(target), "{target}");
}

#[test]
fn what_cannot_be_planned_is_told_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let of = |arguments: &[&str]| stderr(tapml(folder.path()).arg("compile").args(arguments), 2);
    assert!(of(&[&draft()]).contains("--dry-run"));
    assert!(of(&["--dry-run"]).contains("MODEL"));
    assert!(of(&[&draft(), "--dry-run", "--quantize", "q5"]).contains("unknown quantisation `q5`"));
    assert!(of(&[&draft(), "--dry-run", "--target", "hip"]).contains("`hip` is not planned for"));
    assert!(of(&[&draft(), "--dry-run", "--target", "abacus"]).contains("targets: mobile-webgpu"));
    std::fs::write(folder.path().join("bad.tsv"), "name\tmodel_type\tparameters\tconfig\na\tllama\t1\n")
        .unwrap();
    assert!(of(&["--dry-run", "--list", "bad.tsv"]).contains("bad.tsv:2: expected 4 columns"));
}
