//! `tapml diagnose`: what it finds, what it says, and how it ends.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, changed_kernel, draft, json, prompts, start_diagnose, stderr, stops, tapml};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn wrong_rope(folder: &Path) -> String {
    changed_kernel(folder, "rope", ["b * cosine + a * sine", "b * cosine - a * sine"])
}

#[test]
fn a_clean_model_has_no_faults_and_its_suite_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tapml(folder.path());
    command.args(["diagnose", &draft(), "--target", "emulator", "--steps", "1", "--prompts"]);
    let report = json(command.arg(prompts(folder.path())), 0);
    assert_eq!((&report["schema"], &report["faults"]), (&1.into(), &serde_json::json!([])));
    assert!(report["clean_ops"].as_array().unwrap().len() > 5);
    assert_eq!(report["skipped"], serde_json::json!([]));
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(report["whole"]["passed"], true);
    assert!(folder.path().join(".tapml/llama_draft-emulator/diagnosis.html").is_file());
    assert!(Path::new(report["suite"].as_str().unwrap()).is_relative());
    assert!(folder.path().join(report["suite"].as_str().unwrap()).join("suite.json").is_file());
}

#[test]
fn a_fault_is_told_in_text_in_json_and_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let mut command = tapml(folder.path());
    command.args(["diagnose", &draft(), "--target", "emulator", "--kernel", &wrong_rope(folder.path())]);
    command.args(["--json", "faults.json", "--html", "faults.html", "--suite"]).arg(&suite);
    let output = command.assert().code(1).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["fault 1: operator rope (rope/rope.wgsl)", "evidence ", "harm ", "next ", "clean: "] {
        assert!(text.contains(words), "`{words}` is not in:\n{text}");
    }
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("faults.json")).unwrap()).unwrap();
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{text}") };
    for (field, value) in [("op", "rope"), ("kind", "operator")] {
        assert_eq!(fault[field], value, "{field}");
    }
    assert_eq!(fault["nodes"].as_array().unwrap().len(), 8);
    let cause = fault["cause"].as_str().unwrap();
    // Half of the results have one term with the wrong sign.
    assert!(["wrong_sign", "wrong_formula"].contains(&cause), "{cause}: {}", fault["evidence"]);
    assert!(text.contains(&format!("  cause     {cause}")), "{text}");
    assert!(fault["output_impact"]["kl"].as_f64().unwrap() > 0.0);
    assert!(fault["output_impact"]["top1_changed"].is_boolean());
    let (case, next) = (fault["first_bad_case"].as_str().unwrap(), fault["reproduce"].as_str().unwrap());
    assert!(case.starts_with("p0.s0.") && next.contains(case) && next.starts_with("tapml reduce "), "{next}");
    page(folder.path(), cause);
}

/// The page in a real browser.
fn page(folder: &Path, cause: &str) {
    if !Path::new("/usr/bin/chromium").exists() {
        tapml_testing::skip("chromium", "/usr/bin/chromium is not installed");
        return;
    }
    let output = Command::new("/usr/bin/chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", folder.join("faults.html").display()))
        .output()
        .unwrap();
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!log.contains("CONSOLE"), "{log}");
    let section = format!("data-op=\"rope\" data-kind=\"operator\" data-cause=\"{cause}\"");
    assert_eq!(dom.matches(&section).count(), 1);
    assert!(
        dom.contains("id=\"faults\">1<")
            && dom.contains("<svg class=\"grid\"")
            && dom.contains("tapml reduce")
    );
    assert!(!dom.contains("http://") && !dom.contains("https://"), "the page refers to the network");
}

#[test]
fn what_cannot_be_done_is_told_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |args: &[&str]| {
        let mut command = tapml(folder.path());
        stderr(command.args(["diagnose", &draft()]).args(args), 2)
    };
    let text = fails(&["--target", "emulator", "--suite", "nowhere"]);
    assert!(text.contains("nowhere") && text.contains("tapml carve"), "{text}");
    let text = fails(&["--target", "emulator", "--html", "no/such/folder/page.html"]);
    assert!(text.contains("page.html"), "{text}");
    let text = fails(&["--target", "emulator", "--json", "no/such/folder/report.json"]);
    assert!(text.contains("report.json"), "{text}");
    let text = fails(&["--target", "vulcan"]);
    assert!(text.contains("vulcan"), "{text}");
    assert!(fails(&["--target", "emulator", "--repeats", "0"]).contains("repeats"));
    let other = tapml_testing::model("llama").display().to_string();
    let suite = carve_small(folder.path()).display().to_string();
    let text =
        stderr(tapml(folder.path()).args(["diagnose", &other, "--target", "emulator", "--suite", &suite]), 2);
    assert!(text.contains("llama_draft") && text.contains("weight"), "{text}");
}

#[test]
fn a_request_to_stop_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let child = start_diagnose(folder.path(), &["--target", "emulator", "--repeats", "900"], &suite);
    std::thread::sleep(Duration::from_millis(1500));
    stops(child, Duration::from_secs(60));
    assert!(!folder.path().join(".tapml").exists(), "half a report was written");
}
