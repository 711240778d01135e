//! A backend of one's own: the agent in plain Python that serves operators, as a target of the commands; and one that
//! gives wrong results, which every command finds.
#![allow(clippy::unwrap_used)]

mod common;

use common::python::{has_packages, python};
use common::{Serving, carve_small, draft, json, prompts, tapml};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// `numpy_agent.py` on a free port.
struct Agent {
    process: Child,
    target: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the agent with `TAPML_AGENT_PYTHON`, else `python3`; `None`, and a skip, if that lacks its packages.
fn agent(arguments: &[&str]) -> Option<Agent> {
    if !has_packages(&["numpy", "websockets", "grpc_tools"], "python agent") {
        return None;
    }
    let script = tapml_testing::root().join("crates/rpc/examples/numpy_agent.py");
    let mut command = python();
    command.arg(script).args(arguments).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let place = line.trim().strip_prefix("serving at ").unwrap();
    // Behind a hub it is known by a name.
    let target = place.split_once(" as ").map_or(place, |(_, name)| name).to_string();
    Some(Agent { process, target })
}

/// The row of an operator in a report.
fn row<'a>(report: &'a Value, op: &str) -> &'a Value {
    report["ops"].as_array().unwrap().iter().find(|row| row["op"] == op).unwrap()
}

#[test]
fn a_model_runs_on_operators_in_python() {
    let Some(agent) = agent(&["--listen", "127.0.0.1:0"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let mut check = tapml(folder.path());
    let report = json(check.arg("check").arg(&suite).args(["--target", &agent.target]), 0);
    assert_eq!((&report["failed"], &report["target"]["platform"]), (&0.into(), &"numpy".into()), "{report}");
    assert_eq!(report["skipped"].as_array().unwrap().len(), 0);
    assert_eq!(row(&report, "attention")["kernel"], "attention/numpy");

    let mut migrate = tapml(folder.path());
    migrate.args(["migrate", &draft(), "--steps", "2", "--target", &agent.target, "--prompts"]);
    let report = json(migrate.arg(prompts(folder.path())), 0);
    assert_eq!(report["verdict"], "accepted", "{report}");

    let generate = |target: &str| {
        let mut command = tapml(folder.path());
        command.args(["generate", &draft(), "--prompt", "Once upon a time", "--max-tokens", "6"]);
        json(command.args(["--target", target]), 0)["ids"].clone()
    };
    assert_eq!(generate(&agent.target), generate("cpu"));

    let place = agent.target.strip_suffix("/numpy").unwrap();
    let listed = json(tapml(folder.path()).args(["device", "list", place]), 0);
    assert_eq!(listed["operators"][0]["target"], agent.target, "{listed}");
    assert!(listed["operators"][0]["ops"].as_array().unwrap().contains(&"rope".into()), "{listed}");
}

#[test]
fn a_good_agent_conforms_and_a_wrong_one_is_found() {
    let Some(good) = agent(&["--listen", "127.0.0.1:0"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let checked = json(tapml(folder.path()).args(["device", "check", &good.target]), 0);
    assert_eq!(checked["failed"], 0, "{checked}");
    assert!(checked["cases"].as_array().unwrap().len() > 15);
    assert!(row(&checked, "linear")["passed"].as_u64().unwrap() > 3, "{checked}");
    assert!(row(&checked, "attention")["skipped"][0]["reason"].as_str().unwrap().contains("not served"));

    let wrong = agent(&["--listen", "127.0.0.1:0", "--break", "rms_norm"]).unwrap();
    let checked = json(tapml(folder.path()).args(["device", "check", &wrong.target]), 1);
    for op in checked["ops"].as_array().unwrap() {
        assert_eq!(op["failed"].as_u64().unwrap() > 0, op["op"] == "rms_norm", "{op}");
    }
    let failure = &row(&checked, "rms_norm")["failures"][0];
    assert!(failure["expected"].as_str().unwrap().contains("at element"), "{failure}");

    let suite = carve_small(folder.path());
    let mut check = tapml(folder.path());
    let report = json(check.arg("check").arg(&suite).args(["--target", &wrong.target]), 1);
    for op in report["ops"].as_array().unwrap() {
        assert_eq!(op["failed"].as_u64().unwrap() > 0, op["op"] == "rms_norm", "{op}");
    }
    let mut kernel = tapml(folder.path());
    kernel.arg("check").arg(&suite).args(["--target", &good.target, "--kernel"]);
    let file = common::kernel(folder.path(), "rms_norm");
    let told = common::stderr(kernel.arg(format!("rms_norm={}", file.display())), 2);
    assert!(told.contains("no kernels to replace"), "{told}");
}

#[test]
fn operators_behind_a_hub_are_checked_and_diagnosed() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Serving::start(folder.path(), &["hub", "--listen", "127.0.0.1:0"]);
    let one = ["--sessions", "1", "--break", "rms_norm"];
    let Some(wrong) = agent(&[&["--hub", &hub.place], &one[..]].concat()) else { return };
    assert_eq!(wrong.target, "hub/python/numpy");
    let tapml = || {
        let mut command = tapml(folder.path());
        command.env("TAPML_HUB", &hub.place);
        command
    };
    let listed = json(tapml().args(["device", "list", "hub"]), 0);
    assert_eq!(listed["operators"][0]["target"], wrong.target, "{listed}");
    assert!(listed["operators"][0]["ops"].as_array().unwrap().contains(&"rope".into()), "{listed}");
    let checked = json(tapml().args(["device", "check", &format!("{}?wait=2", wrong.target)]), 1);
    for op in checked["ops"].as_array().unwrap() {
        assert_eq!(op["failed"].as_u64().unwrap() > 0, op["op"] == "rms_norm", "{op}");
    }
    // The wire is all right; what needs two sessions is told and ends.
    let wire = checked["cases"].as_array().unwrap().iter().filter(|case| case["outcome"] != "passed");
    let [apart] = wire.collect::<Vec<_>>()[..] else { panic!("{checked}") };
    assert!(apart["reason"].as_str().unwrap().contains("became free in time"), "{apart}");
    let suite = carve_small(folder.path());
    let report = json(tapml().arg("check").arg(&suite).args(["--target", "hub/python"]), 1);
    assert_eq!(row(&report, "linear")["failed"], 0, "{report}");
    let mut diagnose = tapml();
    diagnose.args(["diagnose", &draft(), "--target", &wrong.target, "--prompts"]);
    let report = json(diagnose.arg(prompts(folder.path())), 1);
    let faults = report["faults"].as_array().unwrap();
    assert_eq!((faults.len(), &faults[0]["op"]), (1, &"rms_norm".into()), "{report}");
}
