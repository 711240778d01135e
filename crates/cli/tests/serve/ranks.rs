//! Models on several ranks: `--tensor-parallel`, lists of platforms, and what cannot be shared out.

use super::*;

const PROMPT: &str = "Once upon a time";

/// The text that `generate` writes with these arguments.
fn generate(folder: &Path, arguments: &[&str]) -> Value {
    let mut command = tapml(folder);
    command.args(["generate", &draft(), "--max-tokens", "12", "--prompt", PROMPT]).args(arguments);
    json(&mut command, 0)["text"].clone()
}

#[test]
fn a_served_model_writes_the_same_text_on_two_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let expected = generate(folder.path(), &["--target", "cpu"]);
    assert_eq!(generate(folder.path(), &["--target", "cpu,cpu"]), expected);
    assert_eq!(generate(folder.path(), &["--target", "emulator", "--tensor-parallel", "2"]), expected);
    let server = ServeProcess::start(folder.path(), &["--target", "cpu", "--tensor-parallel", "2"]);
    assert_eq!(server.report["target"], "cpu");
    let body = value!({ "prompt": PROMPT, "max_tokens": 12, "temperature": 0 });
    let (status, answer) = server.post("/v1/completions", "", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["text"], expected);
    server.stop();
}

#[test]
fn a_suite_of_ranks_is_checked_on_one_device_and_on_as_many() {
    let folder = tempfile::tempdir().unwrap();
    let mut carve = tapml(folder.path());
    carve.args([
        "carve",
        &draft(),
        "--tensor-parallel",
        "2",
        "--steps",
        "1",
        "--out",
        "two.suite",
        "--prompts",
    ]);
    carve.arg(common::prompts(folder.path())).assert().success();
    for target in ["emulator", "cpu,emulator"] {
        let report = json(tapml(folder.path()).args(["check", "two.suite", "--target", target]), 0);
        let ops = report["ops"].as_array().unwrap();
        let op = |name: &str| ops.iter().find(|op| op["op"] == name).unwrap();
        assert!(op("all_reduce")["cases"].as_u64().unwrap() > 0, "{report}");
        assert!(op("all_gather")["cases"].as_u64().unwrap() > 0, "{report}");
    }
    let watch = ["check", "two.suite", "--watch", "--kernel", "silu=mine.wgsl", "--target", "cpu,cpu"];
    let said = stderr(tapml(folder.path()).args(watch), 2);
    assert!(said.contains("expected one platform, found several"), "{said}");
}

#[test]
fn a_model_moves_to_two_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let mut migrate = tapml(folder.path());
    migrate.args(["migrate", &draft(), "--target", "emulator,emulator", "--steps", "1", "--prompts"]);
    let report = json(migrate.arg(common::prompts(folder.path())), 0);
    assert_eq!(report["verdict"], "accepted", "{report}");
    let device = report["target"]["device"].as_str().unwrap();
    assert!(device.starts_with("2 ranks of"), "{device}");
    assert!(folder.path().join(".tapml/llama_draft-emulator-emulator").is_dir());
}

#[test]
fn what_cannot_be_shared_out_is_told_with_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        stderr(tapml(folder.path()).args(["serve", &draft(), "--port", "0"]).args(arguments), 2)
    };
    let said = refused(&["--target", "cpu", "--tensor-parallel", "3"]);
    assert!(said.contains("for 3 ranks: node `") && said.contains("do not divide by 3"), "{said}");
    assert!(said.contains("take a number of ranks that divides the heads"), "{said}");
    let said = refused(&["--target", "cpu,cpu,cpu", "--tensor-parallel", "2"]);
    assert!(said.contains("expected platforms for 2 ranks, found 3"), "{said}");
    let said = refused(&["--target", "cpu,abacus"]);
    assert!(said.contains("unknown platform `abacus`"), "{said}");
    let said = refused(&["--target", "emulator,emulator", "--check", "off", "--shadow", "cpu:1"]);
    assert!(said.contains("several ranks show no values of single nodes"), "{said}");
}
