//! The long commands on a device behind an agent: their reports are those of the same device here.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Agent, carve_small, draft, json, kernel, prompts, tapml};
use serde_json::Value;
use std::path::Path;

/// Fields that name the place or the time.
const ELSEWHERE: [&str; 9] =
    ["seconds", "target", "suite", "html", "ledger", "out", "reproduce", "runs_per_second", "command"];

/// A report without what must differ.
fn bare(mut report: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !ELSEWHERE.contains(&name.as_str()));
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut report);
    report
}

/// A kernel of this operator with one text replaced.
fn wrong(folder: &Path, op: &str, right: &str, wrong: &str) -> String {
    let file = kernel(folder, op);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(right));
    std::fs::write(&file, text.replace(right, wrong)).unwrap();
    format!("{op}={}", file.display())
}

/// The report of this command here and through the agent, which both end with `code`; each in a folder of its own.
fn run_both(agent: &Agent, device: &str, code: i32, arguments: &[&str]) -> [Value; 2] {
    [device.to_string(), agent.device_word(device)].map(|target| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tapml(folder.path());
        bare(json(command.args(arguments).args(["--target", &target]), code))
    })
}

#[test]
fn migration_diagnosis_reduction_and_scores_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(folder.path(), &["--target", "emulator"]);
    let (suite, prompts) = (carve_small(folder.path()), prompts(folder.path()));
    let (suite, prompts) = (suite.to_str().unwrap(), prompts.to_str().unwrap());
    let rope = wrong(folder.path(), "rope", "b * cosine + a * sine", "b * cosine - a * sine");
    let norm = wrong(folder.path(), "rms_norm", "/ f32(K) + EPS", "/ f32(K + 1u) + EPS");

    let [here, there] =
        run_both(&agent, "emulator", 0, &["migrate", &draft(), "--steps", "1", "--prompts", prompts]);
    assert_eq!(here["verdict"], "accepted");
    assert_eq!(there, here, "migrate");

    let [here, there] =
        run_both(&agent, "emulator", 1, &["diagnose", &draft(), "--suite", suite, "--kernel", &rope]);
    assert_eq!(here["faults"][0]["op"], "rope");
    assert_eq!(there, here, "diagnose");

    let arguments = ["reduce", suite, "--op", "rms_norm", "--kernel", &norm, "--out", "bug"];
    let [here, there] = run_both(&agent, "emulator", 0, &arguments);
    assert_eq!((&here["fails"], &here["minimal"]), (&true.into(), &true.into()));
    assert_eq!(there, here, "reduce");

    let [here, there] =
        run_both(&agent, "emulator", 0, &["suite", "score", suite, "--op", "rope", "--mutants", "6"]);
    assert!(here["ops"][0]["killed"].as_u64().unwrap() > 0, "{here}");
    assert_eq!(there, here, "suite score");
}

#[test]
fn vulkan_behind_an_agent_is_vulkan() {
    let folder = tempfile::tempdir().unwrap();
    let devices = json(tapml(folder.path()).args(["device", "list"]), 0);
    if !devices["devices"].as_array().unwrap().iter().any(|d| d["platform"] == "vulkan") {
        return tapml_testing::skip("vulkan", "no adapter");
    }
    let agent = Agent::start(folder.path(), &[]);
    let suite = carve_small(folder.path());
    let [here, there] = run_both(&agent, "vulkan", 0, &["check", suite.to_str().unwrap()]);
    assert!(here["cases"].as_u64().unwrap() > 100);
    assert_eq!(there, here, "check");
    let text = ["generate", &draft(), "--prompt", "Once upon a time", "--max-tokens", "6"];
    let [here, there] = run_both(&agent, "vulkan", 0, &text);
    assert_eq!(there["ids"], here["ids"], "generate");
    let checked = |device: &str| {
        let mut report = json(tapml(folder.path()).args(["device", "check", device]), 0);
        let cases = report["cases"].as_array_mut().unwrap();
        // A device here has no wire.
        cases.retain(|case| !case["case"].as_str().unwrap().starts_with("wire_"));
        report["cases"].take()
    };
    assert_eq!(checked(&agent.device_word("vulkan")), checked("vulkan"));
}
