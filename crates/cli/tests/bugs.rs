//! `tapml bench bugs` and `tapml suite score` as users meet them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, draft, json, stderr, tapml};
use serde_json::Value;

#[test]
fn the_bench_lists_shows_and_counts() {
    let folder = tempfile::tempdir().unwrap();
    let bench = || {
        let mut command = tapml(folder.path());
        command.args(["bench", "bugs", "--models", &draft(), "--op", "rms_norm"]);
        command
    };
    let ids = json(bench().arg("--list"), 0);
    let ids: Vec<&str> = ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert!(ids.len() > 30, "{ids:?}");
    let id = ids.iter().find(|id| id.contains("wrong-constant")).unwrap();
    let shown = json(bench().args(["--show", id]), 0);
    assert_eq!((shown["id"].as_str(), shown["family"].as_str()), (Some(*id), Some("arithmetic")));
    assert!(shown["diff"].as_str().unwrap().contains("\n+ "));
    let report = json(bench().args(["--only", id, "--clean", "1", "--workers", "1"]), 0);
    let sighting = &report["mutants"][0]["sighting"];
    assert_eq!(report["mutants"].as_array().unwrap().len(), 1);
    assert!(sighting["ratio"].as_f64().unwrap() > 1.0, "{sighting}");
    assert_eq!((report["clean"][0]["failed"].as_u64(), sighting["class"].as_str()), (Some(0), Some("real")));
    let text = stderr(bench().args(["--only", "llama_draft/rms_norm/none/0"]), 2);
    assert!(text.contains("--list"), "{text}");
    let text = stderr(bench().args(["--family", "cosmic"]), 2);
    assert!(text.contains("synchronisation"), "{text}");
    let text = stderr(bench().args(["--target", "cpu"]), 2);
    assert!(text.contains("emulator"), "{text}");
}

#[test]
fn the_bench_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let run = |extra: &[&str]| {
        let mut command = tapml(folder.path());
        command.args(["bench", "bugs", "--models", &draft(), "--op", "append", "--workers", "1"]);
        command.args(["--checker", "none", "--json", "bugs.json", "--markdown", "bugs.md"]).args(extra);
        command.assert().code(0);
        let text = std::fs::read(folder.path().join("bugs.json")).unwrap();
        let report: Value = serde_json::from_slice(&text).unwrap();
        let ids = report["mutants"].as_array().unwrap().iter();
        ids.map(|m| m["id"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert!(run(&["--minutes", "0"]).is_empty(), "no time, no mutant");
    let first = run(&["--limit", "2"]);
    let more = run(&["--limit", "4"]);
    assert_eq!((first.len(), more.len()), (2, 4));
    assert_eq!(first, more[..2], "what was done is kept");
    let table = std::fs::read_to_string(folder.path().join("bugs.md")).unwrap();
    assert!(table.contains("| policy | used by |"), "{table}");
}

#[test]
fn a_suite_is_scored_and_made_smaller() {
    let folder = tempfile::tempdir().unwrap();
    carve_small(folder.path());
    let suite = "draft.suite";
    let score = |extra: &[&str]| {
        let mut command = tapml(folder.path());
        command.args(["suite", "score", suite, "--op", "rope", "--mutants", "12"]).args(extra);
        json(&mut command, 0)
    };
    let report = score(&["--minimise", "small.suite"]);
    let op = &report["ops"][0];
    assert_eq!((op["op"].as_str(), report["ops"].as_array().unwrap().len()), (Some("rope"), 1));
    assert!(op["killed"].as_u64().unwrap() > 0, "{op}");
    let needed = op["needed"].as_array().unwrap().len();
    assert!(needed > 0 && needed < op["cases"].as_u64().unwrap() as usize);
    let bytes = |suite: &str| std::fs::metadata(folder.path().join(suite).join("tensors.bin")).unwrap().len();
    assert!(bytes("small.suite") * 10 < bytes(suite), "only what the calls need is there");
    let mut check = tapml(folder.path());
    check.args(["check", "small.suite", "--target", "emulator"]);
    assert_eq!(json(&mut check, 0)["cases"].as_u64().unwrap() as usize, needed);
    // The small suite tells as many faults as the large one.
    let again = |suite: &str| {
        let mut command = tapml(folder.path());
        command.args(["suite", "score", suite, "--op", "rope", "--mutants", "12"]);
        json(&mut command, 0)["ops"][0]["killed"].clone()
    };
    assert_eq!(again("small.suite"), op["killed"]);
    let text = stderr(
        tapml(folder.path())
            .args(["suite", "score", suite, "--op", "rope", "--mutants", "1"])
            .args(["--minimise", "small.suite"]),
        2,
    );
    assert!(text.contains("exists already"), "{text}");
    let manifest = folder.path().join("small.suite/suite.json");
    let changed = std::fs::read_to_string(&manifest).unwrap().replace("\"p0.s", "\"p7.s");
    std::fs::write(&manifest, changed).unwrap();
    let text = stderr(tapml(folder.path()).args(["check", "small.suite", "--target", "emulator"]), 2);
    assert!(text.contains("is no call of the runs"), "{text}");
}

#[test]
fn regimes_that_no_call_of_a_suite_reaches_are_told() {
    let folder = tempfile::tempdir().unwrap();
    carve_small(folder.path());
    let score = || {
        let mut command = tapml(folder.path());
        command.args(["suite", "score", "draft.suite", "--target", "emulator?kind=gpu"]);
        command.args(["--op", "rope_append_attention", "--mutants", "1"]);
        command
    };
    let report = json(&mut score(), 0);
    let row = &report["regimes"][0];
    assert_eq!(row["kernel"], "rope_append_attention/gemv", "{report}");
    let unrecorded = row["unrecorded"].as_array().unwrap();
    assert!(unrecorded.contains(&"keys > 1024".into()), "{row}");
    let counts = &report["coverage"]["regimes"];
    assert_eq!((&counts["of"], &counts["made"]), (&row["of"], &unrecorded.len().into()), "{report}");
    let told = score().assert().code(0).get_output().stdout.clone();
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("rope_append_attention/gemv: keys > 1024: no call of the suite"), "{told}");
}

/// The small bundled model with attention windows of 8 positions.
fn make_windowed(folder: &std::path::Path) -> std::path::PathBuf {
    let model = folder.join("windowed");
    std::fs::create_dir(&model).unwrap();
    for entry in std::fs::read_dir(draft()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, model.join(path.file_name().unwrap())).unwrap();
    }
    let path = model.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["architectures"] = serde_json::json!(["MistralForCausalLM"]);
    config["model_type"] = "mistral".into();
    config["sliding_window"] = 8.into();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, config.to_string()).unwrap();
    model
}

#[test]
fn a_prompt_is_sought_for_what_a_suite_is_blind_to() {
    let folder = tempfile::tempdir().unwrap();
    let model = make_windowed(folder.path());
    std::fs::write(folder.path().join("short.txt"), "Once\n").unwrap();
    let mut carve = tapml(folder.path());
    carve.args(["carve", "windowed", "--prompts", "short.txt", "--steps", "0", "--out", "short.suite"]);
    carve.assert().success();
    let mut score = tapml(folder.path());
    score.args(["suite", "score", "short.suite", "--op", "attention", "--mutants", "1", "--seek"]);
    let report = json(&mut score, 0);
    let blind = report["blind"].as_array().unwrap();
    assert_eq!((blind.len(), blind[0]["attribute"].as_str()), (1, Some("WINDOW")), "{blind:?}");
    let found = report["found"].as_array().unwrap();
    assert!(!found.is_empty() && found.len() <= blind[0]["mutants"].as_array().unwrap().len(), "{found:?}");
    for found in found {
        assert!(blind[0]["mutants"].as_array().unwrap().contains(&found["id"]), "{found}");
        assert!(found["prompt"].as_array().unwrap().len() > 8, "beyond the window: {found}");
    }
    // Without its model there is nothing to record calls of.
    std::fs::remove_dir_all(model).unwrap();
    let mut again = tapml(folder.path());
    again.args(["suite", "score", "short.suite", "--op", "attention", "--mutants", "1", "--seek"]);
    assert!(stderr(&mut again, 2).contains("windowed"));
}

#[test]
fn a_kernel_that_does_not_end_on_a_gpu_is_ended_with_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let devices = json(tapml(folder.path()).args(["device", "list"]), 0);
    if !devices["devices"].as_array().unwrap().iter().any(|d| d["platform"] == "vulkan") {
        tapml_testing::skip("vulkan", "no adapter");
        return;
    }
    let bench = || {
        let mut command = tapml(folder.path());
        command.args(["bench", "bugs", "--models", &draft(), "--target", "vulkan", "--op", "attention"]);
        command
    };
    let ids = json(bench().arg("--list"), 0);
    let ids = ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap());
    let tried: Vec<&str> = ids.filter(|id| id.contains("/offset-ignored/")).collect();
    let mut run = bench();
    run.args(["--checker", "none", "--workers", "1", "--deadline", "5"]);
    for id in &tried {
        run.args(["--only", id]);
    }
    let report = json(&mut run, 0);
    let lost = report["mutants"].as_array().unwrap().iter().filter(|m| m["sighting"]["lost"] == true);
    let errors: Vec<&str> = lost.map(|m| m["sighting"]["error"].as_str().unwrap()).collect();
    assert_eq!((errors.len(), report["mutants"].as_array().unwrap().len()), (1, tried.len()), "{report}");
    assert!(errors[0].starts_with("did not end"), "{errors:?}");
}

/// A copy of a model that the test may change, with its weights as they are.
fn copy_model(folder: &std::path::Path) -> std::path::PathBuf {
    let model = folder.join("models/draft");
    std::fs::create_dir_all(&model).unwrap();
    for entry in std::fs::read_dir(draft()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::write(model.join(path.file_name().unwrap()), std::fs::read(&path).unwrap()).unwrap();
    }
    let packed = std::fs::read(model.join("model.safetensors.zst")).unwrap();
    std::fs::write(model.join("model.safetensors"), tapml_testing::unpack(&packed).unwrap()).unwrap();
    model
}

#[test]
fn results_are_kept_for_the_same_work_only() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = (folder.path(), copy_model(folder.path()));
    // Options given twice are refused: each of these stands once.
    let run = |changed: &[&str]| {
        let options = [
            ["--target", "emulator?kind=cpu"],
            ["--checker", "emulator?check=all"],
            ["--activation", "f32"],
            ["--seed", "0"],
            ["--deadline", "60"],
            ["--limit", "1"],
            ["--workers", "1"],
            ["--op", "append"],
        ];
        let mut command = tapml(path);
        command.args(["bench", "bugs", "--models", "models/draft", "--json", "bugs.json"]).args(changed);
        command.args(options.iter().filter(|[name, _]| !changed.contains(name)).flatten());
        command.assert().code(0);
        let report: Value = serde_json::from_slice(&std::fs::read(path.join("bugs.json")).unwrap()).unwrap();
        report["mutants"].as_array().unwrap().len()
    };
    let now = ["--minutes", "0"];
    assert_eq!(run(&[]), 1);
    let kept = std::fs::read(path.join("bugs.json")).unwrap();
    let again = |changed: &[&str]| {
        std::fs::write(path.join("bugs.json"), &kept).unwrap();
        run(&[changed, &now].concat())
    };
    // What chooses what is tried, or how fast, keeps results.
    for changed in
        [&[][..], &["--limit", "3"], &["--workers", "2"], &["--op", "rope"], &["--family", "indexing"]]
    {
        assert_eq!(again(changed), 1, "{changed:?}");
    }
    for changed in [
        &["--target", "emulator?kind=gpu"][..],
        &["--target", "emulator?kind=cpu&profile=mobile"],
        &["--checker", "none"],
        &["--checker", "emulator?check=bounds"],
        &["--checker", "emulator?check=all&profile=mobile"],
        &["--activation", "f16"],
        &["--no-fuse"],
        &["--quantize", "q4"],
        &["--seed", "1"],
        &["--each-operator", "1"],
        &["--deadline", "30"],
        &["--grid"],
    ] {
        assert_eq!(again(changed), 0, "{changed:?}");
    }
    // What the files of the model say.
    let differs = |file: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let file = model.join(file);
        let old = std::fs::read(&file).unwrap();
        let mut new = old.clone();
        change(&mut new);
        assert!(new != old, "{file:?}");
        std::fs::write(&file, new).unwrap();
        assert_eq!(again(&[]), 0, "{file:?}");
        std::fs::write(&file, old).unwrap();
    };
    differs("model.safetensors", &|bytes| *bytes.last_mut().unwrap() ^= 1);
    let replaced = |bytes: &mut Vec<u8>, from: &str, to: &str| {
        *bytes = String::from_utf8(bytes.clone()).unwrap().replace(from, to).into_bytes();
    };
    differs("config.json", &|bytes| replaced(bytes, "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 2e-05"));
    differs("config.json", &|bytes| replaced(bytes, "_embeddings\": 512", "_embeddings\": 256"));
    differs("tokenizer.json", &|bytes| {
        let mut tokenizer: Value = serde_json::from_slice(bytes).unwrap();
        let merges = tokenizer["model"]["merges"].as_array_mut().unwrap();
        merges.truncate(merges.len() / 2);
        *bytes = tokenizer.to_string().into_bytes();
    });
    assert_eq!(again(&[]), 1, "everything is as it was");
}
