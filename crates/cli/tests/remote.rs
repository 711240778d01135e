//! Remote devices on the command line: an agent is started, and commands give through it what they give here.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Agent, carve_small, draft, json, stderr, tapml};

#[test]
fn commands_through_an_agent_give_what_they_give_here() {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(folder.path(), &["--target", "emulator"]);
    let remote = agent.device_word("emulator");

    let generate = |target: &str| {
        let mut command = tapml(folder.path());
        command.args([
            "generate",
            &draft(),
            "--prompt",
            "Once upon a time",
            "--max-tokens",
            "12",
            "--target",
            target,
        ]);
        json(&mut command, 0)["ids"].clone()
    };
    assert_eq!(generate(&remote), generate("emulator"));

    let logits = |target: &str, out: &str| {
        let mut command = tapml(folder.path());
        command.args(["logits", &draft(), "--ids", "1,2,3,4", "--out", out, "--target", target]);
        command.assert().success();
        let file = std::fs::read(folder.path().join(out)).unwrap();
        // The header names the target; the values follow it.
        let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        assert_eq!(file.len() - 8 - header, 4 * 4096 * 4);
        file[8 + header..].to_vec()
    };
    assert!(
        logits(&remote, "there.safetensors") == logits("emulator", "here.safetensors"),
        "logits differ in bits"
    );

    let suite = carve_small(folder.path());
    let check = |target: &str| {
        let mut command = tapml(folder.path());
        command.arg("check").arg(&suite).args(["--target", target]);
        let mut report = json(&mut command, 0);
        report["seconds"] = 0.into();
        for op in report["ops"].as_array_mut().unwrap() {
            op["seconds"] = 0.into();
        }
        (report["target"]["platform"].clone(), report["cases"].clone(), report["ops"].clone())
    };
    assert_eq!(check(&remote), check("emulator"));
}

#[test]
fn devices_of_an_agent_are_listed_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let agent =
        Agent::start(folder.path(), &["--target", "emulator?profile=mobile", "--token-file", "token"]);
    let mut list = tapml(folder.path());
    list.args(["device", "list", &agent.place]);
    assert!(stderr(&mut list, 2).contains("token"));
    let place = format!("{}?token-file=token", agent.place);
    let listed = json(tapml(folder.path()).args(["device", "list", &place]), 0);
    assert!(listed["devices"][0]["name"].as_str().unwrap().contains("mobile"), "{listed}");
    let device = format!("{}?token-file=token", agent.device_word("emulator"));
    let checked = json(tapml(folder.path()).args(["device", "check", &device, "--speed"]), 0);
    assert_eq!(checked["failed"], 0, "{checked}");
    for what in ["round_trip_us", "upload_mb_s", "download_mb_s"] {
        let spread = |part: &str| checked["speed"][what][part].as_f64().unwrap();
        assert!(0.0 < spread("p10") && spread("p10") <= spread("median"), "{checked}");
        assert!(spread("median") <= spread("p90"), "{checked}");
    }
    let other = format!("{}?token-file=token", agent.device_word("vulkan"));
    assert!(
        stderr(tapml(folder.path()).args(["device", "check", &other]), 2).contains("it offers: emulator")
    );
}

#[test]
fn a_device_elsewhere_has_all_its_features() {
    let folder = tempfile::tempdir().unwrap();
    let target = "emulator?kind=gpu&matrices=on";
    let agent = Agent::start(folder.path(), &["--target", target]);
    let listed = |place: Option<&str>| {
        let mut command = tapml(folder.path());
        command.args(["device", "list"]).args(place);
        let devices = json(&mut command, 0)["devices"].clone();
        let emulator = |d: &&serde_json::Value| d["platform"] == "emulator";
        devices.as_array().unwrap().iter().find(emulator).unwrap()["features"].clone()
    };
    let (here, there) = (listed(None), listed(Some(&agent.place)));
    assert_eq!(
        (there["matrices"].as_bool(), here["matrices"].as_bool()),
        (Some(true), Some(false)),
        "{there}"
    );
    let names =
        |features: &serde_json::Value| features.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&there), names(&here));
    let model = tapml_testing::model("llama_head64").display().to_string();
    // Programs for it take the kernels that these features serve.
    let kernels = |target: &str| {
        let mut command = tapml(folder.path());
        command.args(["inspect", &model, "--lowered", "--activation", "f16", "--target", target]);
        let text = String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap();
        let rows = text.lines().filter_map(|line| line.split_once("  # "));
        rows.map(|(_, row)| row.to_string()).collect::<Vec<_>>()
    };
    let (here, there) = (kernels(target), kernels(&agent.device_word("emulator")));
    assert!(there == here && there.iter().any(|row| row.ends_with("_coopmat")), "{there:?}");
    let ids = (1..=40).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    let logits = |target: &str, out: &str| {
        let mut command = tapml(folder.path());
        command.args([
            "logits",
            &model,
            "--activation",
            "f16",
            "--ids",
            &ids,
            "--out",
            out,
            "--target",
            target,
        ]);
        command.assert().success();
        let file = std::fs::read(folder.path().join(out)).unwrap();
        let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        file[8 + header..].to_vec()
    };
    assert!(
        logits(target, "here") == logits(&agent.device_word("emulator"), "there"),
        "logits differ in bits"
    );
}

#[test]
fn an_agent_that_other_machines_can_reach_wants_a_token_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let mut open = tapml(folder.path());
    open.args(["device", "serve", "--listen", "0.0.0.0:0"]);
    assert!(stderr(&mut open, 2).contains("--token-file"));
    let mut plain = tapml(folder.path());
    plain.args(["device", "serve", "--listen", "0.0.0.0:0", "--token-file", "token"]);
    assert!(stderr(&mut plain, 2).contains("--tls-cert"));
    let nobody = stderr(tapml(folder.path()).args(["device", "check", "ws://127.0.0.1:1/emulator"]), 2);
    assert!(nobody.contains("tapml device serve"), "{nobody}");
}

#[test]
fn a_suite_is_checked_from_another_folder_than_it_was_carved_in() {
    let folder = tempfile::tempdir().unwrap();
    let models = tapml_testing::model("llama_draft").parent().unwrap().to_path_buf();
    let (suite, prompts) = (folder.path().join("suite"), common::prompts(folder.path()));
    let mut carve = tapml(&models);
    carve.args(["carve", "llama_draft", "--steps", "1", "--prompts"]).arg(prompts);
    carve.arg("--out").arg(&suite).assert().success();
    let check = || {
        let mut command = tapml(folder.path());
        command.args(["check", "suite", "--op", "rms_norm", "--target", "emulator"]);
        command
    };
    assert_eq!(json(&mut check(), 0)["failed"], 0);
    // Where the model is gone, the error says where it was and what to do.
    let manifest = std::fs::read_to_string(suite.join("suite.json")).unwrap();
    let gone = manifest.replace(&models.display().to_string(), "/gone");
    assert_ne!(gone, manifest, "{manifest}");
    std::fs::write(suite.join("suite.json"), gone).unwrap();
    let said = stderr(&mut check(), 2);
    assert!(said.contains("carved from /gone/llama_draft") && said.contains("--model"), "{said}");
}
