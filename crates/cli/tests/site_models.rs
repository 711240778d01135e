//! The trained models of all architectures as sites, in full and in 4 bits: Chromium and Dawn under Node write what `cpu` writes.
#![allow(clippy::unwrap_used)]

mod common;

use common::site::{Files, Oddities, compile_as, expect_same, generate_on_cpu, run_node};
use serde_json::{Value, json as value};
use std::path::Path;
use tapml_testing::Browser;

/// Behind the prompt; each takes a moment on a software adapter.
const TOKENS: &str = "12";
const PROMPT: &str = "The old man looked";

/// Compiles every model in both forms into folders of their own; gives these with what `cpu` writes.
fn compile_all(folder: &Path, models: &Path) -> Vec<(String, Value)> {
    let mut names: Vec<_> = std::fs::read_dir(models).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.join("config.json").is_file());
    names.sort();
    assert!(names.len() >= 8, "{names:?}");
    let mut sites = Vec::new();
    for path in names {
        let model = path.display().to_string();
        for form in [&[][..], &["--quantize", "q4"]] {
            let name = format!("{}{}", path.file_name().unwrap().display(), form.concat());
            compile_as(folder, &model, &name, &[form, &["--no-suite", "--positions", "64"]].concat());
            let more = [&["--max-tokens", TOKENS], form].concat();
            sites.push((name, generate_on_cpu(folder, &model, PROMPT, &more)));
        }
    }
    sites
}

/// Compares what was posted for each site: that it was loaded, then what it wrote.
fn expect_all(sites: &[(String, Value)], mut next: impl FnMut() -> Value) {
    for (name, expected) in sites {
        println!("{name}");
        let loaded = next();
        assert!(loaded["facts"]["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{name}: {loaded}");
        expect_same(&next(), expected);
    }
}

#[test]
#[ignore = "takes minutes on a software adapter; run it with --ignored"]
fn every_model_writes_in_a_browser_and_in_dawn_what_cpu_writes() {
    let Some(models) = tapml_testing::extra_models() else { return };
    let folder = tempfile::tempdir().unwrap();
    let sites = compile_all(folder.path(), &models);
    // The module is the same in all.
    let module = folder.path().join(&sites[0].0).join("tapml.js");
    std::fs::copy(module, folder.path().join("tapml.js")).unwrap();
    let files = Files::serve(folder.path(), Oddities::default());
    let write = value!({"write": {"prompt": PROMPT, "max_tokens": TOKENS.parse::<u32>().unwrap()}});
    let steps = |base: &str| -> Value {
        let of_site = |(name, _): &(String, Value)| {
            [value!({"load": format!("{base}{name}/")}), write.clone(), value!({"close": true})]
        };
        sites.iter().flat_map(of_site).collect()
    };
    if let Some(posted) = run_node(&files, folder.path(), &steps(&files.url)) {
        let mut posted = posted.into_iter();
        expect_all(&sites, || posted.next().unwrap());
    }
    if Browser::is_here() {
        let _browser = files.open(&steps("./"));
        expect_all(&sites, || files.report());
    }
}
