//! Every launch of every trained model is of a row of the kernel list whose calls a suite holds, recorded or composed, on
//! every kind of device.
#![allow(clippy::unwrap_used)]

mod common;

use common::forms::{FORMS, devices, open};
use common::{decode, identity};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tapml_exec::{CpuPlatform, DevicePlatform, LoadOptions, Overrides, Platform};
use tapml_graph::Model;
use tapml_migrate::suite::Suite;
use tapml_migrate::{CarveOptions, PromptInput, Quiet, Stop, carve, composed_suites};

const MODELS: [&str; 6] = ["phi", "gpt_neox", "gpt_bigcode", "starcoder2", "gemma2", "qwen2_moe"];
/// The rows that calls of these suites run on.
fn checked_rows(platform: &dyn Platform, suites: &[&Suite]) -> BTreeSet<String> {
    let rows = suites.iter().flat_map(|suite| {
        suite.cases().filter_map(|case| {
            let node = suite.graph().node(case.node);
            let inputs = suite.graph().input_types(node);
            Some(platform.kernel_for(&node.op, &inputs, suite.phase(case)).ok()?.name)
        })
    });
    rows.collect()
}

/// The launches that no call explains.
fn unexplained_launches(model: &Model, suite: &Suite, platform: &dyn Platform) -> Vec<String> {
    let composed = composed_suites(suite, platform).unwrap();
    let checked = checked_rows(platform, &[suite, &composed[0], &composed[1]]);
    let launched = platform.launches(model.graph(), &LoadOptions::default()).unwrap().unwrap();
    assert!(!launched.is_empty());
    let missing = launched.iter().filter(|launched| !checked.contains(&launched.row));
    missing.map(|launched| format!("{} of {}", launched.row, launched.phase.name())).collect()
}

#[test]
fn every_launch_of_every_trained_model_is_of_a_row_that_calls_check() {
    let bundled = ["llama", "llama_draft", "llama_head64", "qwen2_moe_head128"].map(tapml_testing::model);
    let others = MODELS.iter().filter_map(|name| tapml_testing::extra_model(name));
    let mut wrong = Vec::new();
    for dir in bundled.into_iter().chain(others).collect::<Vec<PathBuf>>() {
        for form in FORMS {
            let model = open(&dir, form).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("suite");
            let options = CarveOptions {
                out: &out,
                overwrite: false,
                steps: 1,
                self_contained: false,
                context: 0,
                decode: &decode,
            };
            let prompt =
                PromptInput { text: "some".into(), ids: (5..12).collect(), image: None, most_steps: None };
            let mut source = CpuPlatform::new();
            carve(&mut source, &model, identity(), &[prompt], &options, &Quiet, &Stop::new()).unwrap();
            let suite = Suite::open(&out).unwrap();
            for (name, device) in devices() {
                let platform = DevicePlatform::new(Box::new(device), Overrides::default());
                let missing = unexplained_launches(&model, &suite, &platform);
                wrong
                    .extend(missing.iter().map(|row| format!("{} {form:?} on {name}: {row}", dir.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "launches that no call checks:\n{}", wrong.join("\n"));
}
