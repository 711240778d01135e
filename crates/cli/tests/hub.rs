//! A hub on the command line: agents dial in, commands find their devices, and a suite is spread over all of them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Run, Serving, carve_small, count_recorded, draft, json, kernel, stderr, tapml};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Waits until the hub knows these devices.
fn wait_for_devices(folder: &Path, hub: &str, names: &[&str]) -> Value {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let listed = json(tapml(folder).args(["device", "list", &format!("hub?hub={hub}")]), 0);
        let all = listed["devices"].as_array().unwrap();
        let found: Vec<_> = all.iter().map(|d| d["target"].as_str().unwrap().to_string()).collect();
        if names.iter().all(|name| found.contains(&format!("hub/{name}"))) {
            return listed;
        }
        assert!(Instant::now() < until, "{listed}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn devices_of_a_hub_are_used_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Serving::hub(folder.path(), "127.0.0.1:0");
    let _agent = Serving::agent(folder.path(), &hub.place, "lab", "emulator?profile=mobile");
    let listed = wait_for_devices(folder.path(), &hub.place, &["lab/emulator"]);
    let device = &listed["devices"][0];
    assert!(device["name"].as_str().unwrap().contains("mobile"), "{listed}");
    assert!(device["hub"]["agent"].as_str().unwrap().starts_with("tapml "), "{listed}");
    assert_eq!((&device["hub"]["busy"], &device["hub"]["sessions"]), (&0.into(), &4.into()));
    let generate = |target: &str| {
        let mut command = tapml(folder.path());
        let prompt = ["--prompt", "Once upon a time", "--max-tokens", "4", "--target", target];
        command.env("TAPML_HUB", &hub.place).args(["generate", &draft()]).args(prompt);
        json(&mut command, 0)["ids"].clone()
    };
    assert_eq!(generate("hub/lab/emulator"), generate("emulator?profile=mobile"));
    let mut check = tapml(folder.path());
    check.env("TAPML_HUB", &hub.place).args(["device", "check", "hub/emulator"]);
    assert_eq!(json(&mut check, 0)["failed"], 0);
    let mut none = tapml(folder.path());
    none.env("TAPML_HUB", &hub.place).args(["device", "check", "hub/webgpu?wait=1"]);
    let said = stderr(&mut none, 2);
    assert!(said.contains("no agent at the hub offers `webgpu`") && said.contains("lab/emulator"), "{said}");
    let nobody = stderr(tapml(folder.path()).args(["device", "list", "hub?hub=ws://127.0.0.1:1"]), 2);
    assert!(nobody.contains("tapml device hub"), "{nobody}");
}

fn fleet(folder: &Path, suite: &Path, hub: &str, more: &[&str]) -> assert_cmd::Command {
    let mut command = tapml(folder);
    command.env("TAPML_HUB", hub).arg("check").arg(suite).args(more);
    command
}

fn columns(report: &Value) -> &Vec<Value> {
    report["devices"].as_array().unwrap()
}

fn cases(column: &Value) -> u64 {
    column["ops"].as_array().unwrap().iter().map(|op| op["cases"].as_u64().unwrap()).sum()
}

#[test]
fn a_fleet_shares_a_suite_and_tells_what_is_wrong_where() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let hub = Serving::hub(folder.path(), "127.0.0.1:0");
    let _one = Serving::agent(folder.path(), &hub.place, "one", "emulator");
    let _two = Serving::agent(folder.path(), &hub.place, "two", "emulator?profile=mobile");
    wait_for_devices(folder.path(), &hub.place, &["one/emulator", "two/emulator"]);
    let all = count_recorded(&json(
        tapml(folder.path()).arg("check").arg(&suite).args(["--target", "emulator"]),
        0,
    ));

    let shared =
        json(&mut fleet(folder.path(), &suite, &hub.place, &["--target", "hub/emulator", "--fleet"]), 0);
    assert_eq!((shared["cases"].as_u64(), &shared["failed"]), (Some(all), &0.into()), "{shared}");
    assert_eq!(columns(&shared).len(), 2);
    assert!(columns(&shared).iter().all(|c| cases(c) > 0 && cases(c) < all), "{shared}");
    assert_eq!(columns(&shared).iter().map(cases).sum::<u64>(), all);

    // Every case on every device, one of them of this machine, with a kernel that is wrong.
    let file = kernel(folder.path(), "rms_norm");
    let text = std::fs::read_to_string(&file).unwrap();
    let wrong = text.replace("* factor * weight", "* factor * 1.01 * weight");
    assert!(wrong != text);
    std::fs::write(&file, wrong).unwrap();
    let replace = format!("rms_norm={}", file.display());
    let targets = "hub/one,hub/two/emulator,emulator";
    let every = ["--target", targets, "--fleet=every", "--op", "rms_norm", "--kernel", &replace];
    let report = json(&mut fleet(folder.path(), &suite, &hub.place, &every), 1);
    assert_eq!(columns(&report).len(), 3, "{report}");
    for column in columns(&report) {
        assert_eq!(column["ops"][0]["op"], "rms_norm");
        assert!(column["ops"][0]["failed"].as_u64().unwrap() > 0, "{column}");
        assert_eq!(cases(column) * 3, report["cases"].as_u64().unwrap());
    }
    let mut shown = fleet(folder.path(), &suite, &hub.place, &every);
    let shown = String::from_utf8(shown.assert().code(1).get_output().stdout.clone()).unwrap();
    assert!(shown.contains("hub/two/emulator") && shown.contains("FAILED"), "{shown}");
    // The second is the word of version 0.2.
    for word in ["--wait-timeout", "--patience"] {
        let nobody = ["--target", "hub/webgpu", "--fleet", word, "1"];
        let said = stderr(&mut fleet(folder.path(), &suite, &hub.place, &nobody), 2);
        assert!(said.contains("no device answers"), "{said}");
    }
}

#[test]
fn a_fleet_loses_nothing_when_an_agent_is_killed_and_the_hub_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let mut hub = Serving::hub(folder.path(), "127.0.0.1:0");
    let place = hub.place.clone();
    let _one = Serving::agent(folder.path(), &place, "one", "emulator");
    let two = Serving::agent(folder.path(), &place, "two", "emulator");
    wait_for_devices(folder.path(), &place, &["one/emulator", "two/emulator"]);
    let all = count_recorded(&json(
        tapml(folder.path()).arg("check").arg(&suite).args(["--target", "emulator"]),
        0,
    ));
    let mut run = Command::new(env!("CARGO_BIN_EXE_tapml"));
    run.current_dir(folder.path()).env("TAPML_HUB", &place).arg("check").arg(&suite);
    run.args(["--target", "hub/emulator", "--fleet"]);
    let mut run = Run::start(run);
    // In the middle of the run: killed, not asked.
    run.wait_for(0.1);
    drop(two);
    run.wait_for(0.2);
    let _ = hub.process.kill();
    let _ = hub.process.wait();
    let listen = place.trim_start_matches("ws://").to_string();
    drop(hub);
    let _hub = Serving::hub(folder.path(), &listen);
    let (code, report) = run.end();
    assert_eq!(code, 0, "{report}");
    assert_eq!((report["cases"].as_u64(), &report["failed"]), (Some(all), &0.into()), "{report}");
    assert!(report["missing"].as_array().unwrap().is_empty());
    // The next command works.
    wait_for_devices(folder.path(), &place, &["one/emulator"]);
    let mut check = tapml(folder.path());
    check.env("TAPML_HUB", &place).args(["device", "check", "hub/one"]);
    assert_eq!(json(&mut check, 0)["failed"], 0);
}
