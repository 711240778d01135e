//! Each command on the small bundled model: results, exit codes, report fields.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, draft, json, kernel, prompts, stderr, tapml};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tapml::import::safetensors::{File, write};

#[test]
fn inspect_counts_what_the_model_has() {
    let folder = tempfile::tempdir().unwrap();
    let llama = tapml_testing::model("llama").display().to_string();
    let report = json(tapml(folder.path()).args(["inspect", &llama]), 0);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["model_type"], "llama");
    let parameters = report["parameters"].as_u64().unwrap();
    assert!((10_600_000..10_700_000).contains(&parameters), "{parameters}");
    let text = tapml(folder.path())
        .args(["inspect", &llama, "--text"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    assert!(String::from_utf8(text).unwrap().contains("weight model.embed_tokens.weight: bf16[4096,320]"));
}

#[test]
fn greedy_text_is_the_same_on_cpu_emulator_and_vulkan() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |target: &str| {
        let arguments =
            ["generate", &draft(), "--prompt", "Once upon a time", "--max-tokens", "12", "--target", target];
        json(tapml(folder.path()).args(arguments), 0)
    };
    let (cpu, emulator) = (generate("cpu"), generate("emulator"));
    assert_eq!(cpu["ids"].as_array().unwrap().len(), 12);
    assert_eq!(cpu["ids"], emulator["ids"]);
    assert_eq!(cpu["text"], emulator["text"]);
    assert!(!cpu["text"].as_str().unwrap().is_empty());
    for memory in ["plain", "poison"] {
        assert_eq!(cpu["ids"], generate(&format!("emulator?memory={memory}"))["ids"], "{memory}");
    }
    let devices = json(tapml(folder.path()).args(["device", "list"]), 0);
    if devices["devices"].as_array().unwrap().iter().any(|d| d["platform"] == "vulkan") {
        assert_eq!(cpu["ids"], generate("vulkan")["ids"])
    } else {
        tapml_testing::skip("vulkan", "no adapter")
    }
}

#[test]
fn sampling_is_repeatable_by_seed() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |seed: &str| {
        let arguments = [
            "generate",
            &draft(),
            "--ids",
            "0,50,60",
            "--max-tokens",
            "16",
            "--target",
            "cpu",
            "--temperature",
            "1",
            "--seed",
            seed,
        ];
        json(tapml(folder.path()).args(arguments), 0)["ids"].clone()
    };
    assert_eq!(generate("1"), generate("1"));
    assert_ne!(generate("1"), generate("2"));
}

#[test]
fn logits_have_every_position_and_hidden_state() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["logits", &draft(), "--ids", "0,17,42", "--hidden", "--out", "logits.safetensors"];
    let report = json(tapml(folder.path()).args(arguments), 0);
    assert_eq!(report["tensors"]["logits"], serde_json::json!([3, 4096]));
    for layer in 0..=4 {
        assert_eq!(report["tensors"][format!("hidden.{layer}")], serde_json::json!([3, 128]));
    }
    assert!(folder.path().join("logits.safetensors").is_file());
}

#[test]
fn check_passes_and_reports_as_promised() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let report = json(
        tapml(folder.path()).arg("check").arg(&suite).args(["--target", "emulator", "--junit", "j.xml"]),
        0,
    );
    assert_eq!(report["failed"], 0);
    assert_eq!(report["skipped"], serde_json::json!([]));
    assert_eq!(report["target"]["platform"], "emulator");
    let fields: BTreeSet<&str> = report["ops"][0].as_object().unwrap().keys().map(String::as_str).collect();
    for field in ["op", "kernel", "cases", "failed", "worst", "seconds"] {
        assert!(fields.contains(field), "{field} is missing in {fields:?}");
    }
    let sum: u64 = report["ops"].as_array().unwrap().iter().map(|o| o["cases"].as_u64().unwrap()).sum();
    assert_eq!(report["cases"].as_u64().unwrap(), sum);
    assert!(std::fs::read_to_string(folder.path().join("j.xml")).unwrap().contains("<testsuite"));
}

#[test]
fn a_wrong_kernel_fails_the_check_and_a_right_one_passes() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let file = kernel(folder.path(), "rms_norm");
    let mut check = tapml(folder.path());
    check.arg("check").arg(&suite).args(["--target", "emulator", "--op", "rms_norm", "--kernel"]);
    check.arg(format!("rms_norm={}", file.display()));
    // Races show by chance alone on an emulator that does not look for them.
    assert!(stderr(&mut check, 0).contains("emulator?check=all"));

    let right = std::fs::read_to_string(&file).unwrap();
    let wrong = right.replace("/ f32(K) + EPS", "/ f32(K) * 1.001 + EPS");
    assert_ne!(right, wrong, "the kernel's text has changed: adapt the fault");
    std::fs::write(&file, wrong).unwrap();
    let mut check = tapml(folder.path());
    check.arg("check").arg(&suite).args(["--target", "emulator", "--op", "rms_norm", "--kernel"]);
    check.arg(format!("rms_norm={}", file.display()));
    let next = stderr(&mut check, 1);
    assert!(next.contains("next: tapml reduce ") && next.contains(" --case p0."), "{next}");
    let report = json(&mut check, 1);
    assert_eq!(report["failed"], report["cases"]);
    assert!(report["ops"][0]["worst"]["ratio"].as_f64().unwrap() > 10.0);
}

#[test]
fn migrate_accepts_the_whole_model_and_goes_on_from_its_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = prompts(folder.path());
    let run = || {
        let mut command = tapml(folder.path());
        command.args([
            "migrate",
            &draft(),
            "--target",
            "emulator",
            "--steps",
            "2",
            "--ledger",
            "ledger",
            "--prompts",
        ]);
        json(command.arg(&prompts), 0)
    };
    let first = run();
    assert_eq!(first["verdict"], "accepted");
    for op in first["ops"].as_array().unwrap() {
        assert_eq!(op["state"], "accepted", "{op}");
        assert_eq!(op["check"]["failed"], 0);
        assert_eq!(op["model"]["top1_agreement"], 1.0);
        assert_eq!(op["model"]["text_equal"], true);
    }
    assert_eq!(first["coverage"]["calls"], first["coverage"]["checked"]);
    assert!(folder.path().join("ledger/report.html").is_file());
    let again = run();
    assert_eq!(again["verdict"], "accepted");
    let time = |report: &serde_json::Value, part: &str| report["seconds"][part].as_f64().unwrap();
    let work = |report: &serde_json::Value| time(report, "carve") + time(report, "check");
    assert!(work(&again) < work(&first) / 2.0, "{} s again, {} s at first", work(&again), work(&first));
}

#[test]
fn migrate_leaves_a_faulty_operator_on_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = prompts(folder.path());
    let file = kernel(folder.path(), "rope");
    let right = std::fs::read_to_string(&file).unwrap();
    let wrong = right.replace("b * cosine + a * sine", "b * cosine - a * sine");
    assert_ne!(right, wrong);
    std::fs::write(&file, wrong).unwrap();
    let mut command = tapml(folder.path());
    command.args(["migrate", &draft(), "--target", "emulator", "--steps", "1", "--ledger", "l", "--prompts"]);
    command.arg(&prompts).arg("--kernel").arg(format!("rope={}", file.display()));
    let report = json(&mut command, 1);
    assert_eq!(report["verdict"], "rejected");
    let state = |op: &str| {
        let ops = report["ops"].as_array().unwrap();
        ops.iter().find(|o| o["op"] == op).map(|o| o["state"].as_str().unwrap().to_string())
    };
    assert_eq!(state("rope").as_deref(), Some("rejected"));
    assert_eq!(state("linear").as_deref(), Some("accepted"));
    assert_eq!(state("attention").as_deref(), Some("accepted"));
}

#[test]
fn device_list_names_what_is_here_and_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let report = json(tapml(folder.path()).args(["device", "list"]), 0);
    let devices = report["devices"].as_array().unwrap();
    assert!(devices.iter().any(|d| d["platform"] == "emulator"));
    assert!(
        report["unavailable"].as_array().unwrap().iter().any(|u| u["platform"] == "metal")
            || cfg!(target_os = "macos")
    );
    let text = stderr(tapml(folder.path()).args(["device", "check", "vulcan"]), 2);
    assert!(text.contains("unknown platform `vulcan`") && text.contains("vulkan"), "{text}");
}

/// SwiftShader is the floor that kernels must stand on: no f16, subgroups of four, 256 invocations.
#[test]
fn every_kernel_is_right_on_swiftshader() {
    let driver = "/usr/lib/chromium/vk_swiftshader_icd.json";
    if !std::path::Path::new(driver).exists() {
        tapml_testing::skip("chromium", "its SwiftShader driver is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("small.suite");
    std::fs::write(folder.path().join("prompt.txt"), "Once upon\n").unwrap();
    let mut carve = tapml(folder.path());
    carve.args(["carve", &draft(), "--steps", "1", "--prompts", "prompt.txt", "--out"]).arg(&suite);
    carve.assert().success();
    let mut list = tapml(folder.path());
    list.env("VK_DRIVER_FILES", driver).env("VK_ICD_FILENAMES", driver);
    let devices = json(list.args(["device", "list"]), 0);
    let vulkan =
        devices["devices"].as_array().unwrap().iter().find(|d| d["platform"] == "vulkan").unwrap().clone();
    assert!(vulkan["name"].as_str().unwrap().contains("SwiftShader"), "{vulkan}");
    assert_eq!(vulkan["features"]["f16"], false);
    let mut check = tapml(folder.path());
    check.env("VK_DRIVER_FILES", driver).env("VK_ICD_FILENAMES", driver);
    let report = json(check.arg("check").arg(&suite).args(["--target", "vulkan"]), 0);
    assert_eq!(report["failed"], 0);
    assert_eq!(
        report["cases"],
        2 * 57,
        "a prefill and a decode step of all nodes and of the next token's choice"
    );
}

/// A race that happens to give right numbers: accepted without checks, and not accepted from the ledger with them.
#[test]
fn evidence_gathered_without_checks_does_not_hold_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = prompts(folder.path());
    let file = kernel(folder.path(), "linear");
    let right = std::fs::read_to_string(&file).unwrap();
    let wrong = right.replacen("    workgroupBarrier();\n", "", 1);
    assert_ne!(right, wrong);
    std::fs::write(&file, wrong).unwrap();
    let overridden = format!("linear={}", file.display());
    let migrate = |target: &str, code: i32| {
        let mut command = tapml(folder.path());
        command.args([
            "migrate",
            &draft(),
            "--steps",
            "1",
            "--ledger",
            "l",
            "--target",
            target,
            "--kernel",
            &overridden,
        ]);
        json(command.arg("--prompts").arg(&prompts), code)
    };
    let state = |report: &serde_json::Value| {
        let ops = report["ops"].as_array().unwrap();
        ops.iter().find(|o| o["op"] == "linear").unwrap()["state"].as_str().unwrap().to_string()
    };
    assert_eq!(state(&migrate("emulator?threads=1", 0)), "accepted");
    let checked = migrate("emulator?check=all", 1);
    assert_eq!(state(&checked), "rejected");
    assert!(checked["target"]["device"].as_str().unwrap().contains("check=all"));

    let suite = carve_small(folder.path());
    let mut check = tapml(folder.path());
    check.arg("check").arg(&suite).args([
        "--target",
        "emulator?check=all",
        "--op",
        "linear",
        "--junit",
        "j.xml",
    ]);
    let report = json(check.args(["--kernel", &overridden]), 1);
    let finding = &report["ops"][0]["findings"][0];
    let line = right.lines().position(|l| l.contains("w_tile[lane] += w_tile[lane + step]")).unwrap() as u64;
    assert_eq!(finding["kind"], "race_in_workgroup");
    assert_eq!(finding["line"], line, "the barrier's line is gone, so that lines count one less: {finding}");
    let xml = std::fs::read_to_string(folder.path().join("j.xml")).unwrap();
    assert!(xml.contains("<failure") && xml.contains("race"), "{xml}");
}

#[test]
fn a_device_file_is_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    if !std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
        tapml_testing::skip("mkfifo", "no named pipes here");
        return;
    }
    let reader =
        std::process::Command::new("cat").arg(&pipe).stdout(std::process::Stdio::piped()).spawn().unwrap();
    tapml(folder.path()).args(["inspect", &draft(), "--json", "pipe"]).assert().success();
    let text = reader.wait_with_output().unwrap().stdout;
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&text).unwrap()["model_type"], "llama");
}

/// Models of other architectures, in the folder that `TAPML_MODELS` names.
#[test]
fn migrate_accepts_trained_models_of_other_architectures() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prompts.txt"), "The old man looked\n").unwrap();
    let devices = json(tapml(folder.path()).args(["device", "list"]), 0);
    let vulkan = devices["devices"].as_array().unwrap().iter().any(|d| d["platform"] == "vulkan");
    if !vulkan {
        tapml_testing::skip("vulkan", "no adapter");
    }
    for name in ["gpt_neox", "phi", "starcoder2", "gpt_bigcode", "gemma2", "qwen2_moe"] {
        let Some(model) = tapml_testing::extra_model(name) else { continue };
        for target in ["emulator", "vulkan"].into_iter().filter(|target| vulkan || *target != "vulkan") {
            let mut command = tapml(folder.path());
            command
                .args(["migrate", "--target", target, "--steps", "1", "--prompts", "prompts.txt"])
                .arg(&model);
            let report = json(&mut command, 0);
            assert_eq!(report["verdict"], "accepted", "{name} on {target}");
            assert_eq!(report["coverage"]["calls"], report["coverage"]["checked"], "{name} on {target}");
        }
    }
}

#[test]
fn align_names_the_first_value_that_departs() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = tapml_testing::golden("llama_tiny_plain");
    let golden = tiny.join("golden.safetensors").display().to_string();
    let good =
        json(tapml(folder.path()).args(["align", &tiny.display().to_string(), "--golden", &golden]), 0);
    assert!(good["departs"].is_null());
    assert_eq!(good["values"].as_array().unwrap().len(), 4);

    // The same weights under another epsilon: the first norm is wrong, so the first layer departs.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(tiny.join("model.safetensors"), other.join("model.safetensors")).unwrap();
    let config = std::fs::read_to_string(tiny.join("config.json")).unwrap();
    let config = config.replace("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0.5");
    std::fs::write(other.join("config.json"), config).unwrap();
    let bad =
        json(tapml(folder.path()).args(["align", &other.display().to_string(), "--golden", &golden]), 1);
    assert_eq!(bad["departs"]["name"], "hidden.1");
    let nodes = bad["departs"]["nodes"].as_array().unwrap();
    assert_eq!(nodes[0]["op"], "rms_norm");
    assert!(nodes.iter().any(|n| n["op"] == "attention"));

    let weights = tiny.join("model.safetensors").display().to_string();
    let mut missing = tapml(folder.path());
    missing.args(["align", &tiny.display().to_string(), "--golden", &weights]);
    assert!(stderr(&mut missing, 2).contains("p0.input_ids"));

    // Nothing to compare with is no agreement.
    let ids = File::open(&tiny.join("golden.safetensors")).unwrap().tensor("p0.input_ids").unwrap();
    let bare = folder.path().join("bare.safetensors");
    write(&bare, &[("p0.input_ids", ids)], &BTreeMap::new()).unwrap();
    let align = |golden: &str, tolerance: &str| {
        let mut command = tapml(folder.path());
        command.args(["align", &tiny.display().to_string(), "--golden", golden]);
        command.arg(format!("--tolerance={tolerance}"));
        stderr(&mut command, 2)
    };
    assert!(align(&bare.display().to_string(), "1e-4").contains("p0.logits"));
    for tolerance in ["NaN", "-1", "much"] {
        assert!(align(&golden, tolerance).contains("tolerance"), "{tolerance}");
    }
}

#[test]
fn bench_decode_measures_a_shape_without_weights() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(Path::new(&draft()).join("config.json"), folder.path().join("config.json")).unwrap();
    let mut command = tapml(folder.path());
    command.args(["bench", "decode", ".", "--random", "--target", "emulator", "--runs", "2", "--profile"]);
    let report = json(command.args(["--tokens", "3", "--prompt-tokens", "2", "--prefill", "4"]), 0);
    assert!(report["decode_tps"].as_f64().unwrap() > 0.0 && report["runs"].as_array().unwrap().len() == 2);
    assert!(report["share_of_floor"].as_f64().unwrap() < 1.0 && report["random_weights"] == true);
    let kernels = report["profile"].as_array().unwrap();
    assert!(
        kernels.iter().any(|k| k["kernel"].as_str().unwrap().starts_with("gated_linear/")),
        "{kernels:?}"
    );
    let mut none = tapml(folder.path());
    none.args(["bench", "decode", ".", "--random", "--target", "emulator", "--tokens", "0"]);
    assert!(stderr(&mut none, 2).contains("at least 1"));
}

#[test]
fn bench_draft_reaches_the_acceptance_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let large = tapml_testing::model("llama").display().to_string();
    let bench = |options: &[&str]| {
        let mut command = tapml(folder.path());
        command
            .args(["bench", "draft", &large, "--target", "cpu", "--tokens", "40", "--runs", "1"])
            .args(options);
        command
    };
    let small = draft();
    // A text with guesses that is another one than without is an error of the command.
    let report = json(&mut bench(&["--draft", &small, "--acceptance", "0.8", "--clients", "4"]), 0);
    let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    // More than 100 guesses of a chance of 0.8: the deviation is below 0.04.
    assert!(number("compared_tokens") > 100.0 && (number("acceptance") - 0.8).abs() < 0.16, "{report}");
    assert!(
        (2.0..4.5).contains(&number("tokens_per_step"))
            && report["speedup"]["median"].as_f64().unwrap() > 0.0,
        "{report}"
    );
    let all = json(&mut bench(&["--draft", &small, "--acceptance", "1", "--draft-tokens", "3"]), 0);
    assert_eq!((all["acceptance"].as_f64(), all["draft_tokens"].as_u64()), (Some(1.0), Some(3)));
    let none = json(&mut bench(&["--draft", &small, "--acceptance", "0"]), 0);
    assert_eq!((none["acceptance"].as_f64(), none["tokens_per_step"].as_f64()), (Some(0.0), Some(1.0)));
    let own = json(&mut bench(&["--draft", &small]), 0);
    assert!(own.get("asked_acceptance").is_none() && own["acceptance"].as_f64().unwrap() > 0.3, "{own}");
    let text = json(&mut bench(&["--ngram", "4"]), 0);
    assert!(text["draft_steps"].as_array().unwrap().is_empty() && text.get("draft").is_none(), "{text}");
    for (options, said) in [
        (&["--draft", &small, "--acceptance", "1.5"][..], "from 0 to 1"),
        (&["--draft", &small, "--prompt-tokens", "0"], "at least 1"),
        (&[], "--draft"),
    ] {
        assert!(stderr(&mut bench(options), 2).contains(said), "{said}");
    }
}
