//! The check of a device by the page of a site: right kernels pass, a wrong one is found and named, and the file that is saved is read
//! by `tapml device reports`.
#![allow(clippy::unwrap_used)]

mod common;

use common::site::{Files, Oddities, compile, enter, of_any_device, read_json, run_node};
use common::{draft, json, stderr, tapml};
use serde_json::{Value, json as value};
use std::path::Path;
use tapml_testing::Browser;

/// Multiplies what a kernel's text computes here.
const PLANTED: [&str; 2] = ["let factor = inverse_root(", "let factor = 1.001 * inverse_root("];

/// Plants a fault in the kernels of `rms_norm` of all programs; gives how many kernels have it.
fn plant(site: &Path) -> usize {
    let mut manifest = read_json(&site.join("site.json"));
    let mut planted = 0;
    for entry in manifest["programs"].as_array_mut().unwrap() {
        let file = site.join(entry["file"].as_str().unwrap());
        let mut program = read_json(&file);
        for kernel in program["kernels"].as_array_mut().unwrap() {
            let name = kernel["name"].as_str().unwrap().to_string();
            let text = kernel["source"]["text"].as_str().unwrap().to_string();
            if name.starts_with("rms_norm") {
                assert!(text.contains(PLANTED[0]), "{name}: {text}");
                kernel["source"]["text"] = value!(text.replace(PLANTED[0], PLANTED[1]));
                planted += 1;
            }
        }
        std::fs::write(&file, program.to_string()).unwrap();
        enter(site, entry);
    }
    std::fs::write(site.join("site.json"), manifest.to_string()).unwrap();
    planted
}

/// The operators of a report with a wrong call.
fn wrong(report: &Value) -> Vec<&str> {
    let ops = report["ops"].as_array().unwrap().iter();
    ops.filter(|op| op["failed"] != 0).map(|op| op["op"].as_str().unwrap()).collect()
}

fn expect_right(report: &Value, site: &Path) {
    let manifest = read_json(&site.join("site.json"));
    let program = of_any_device(&manifest);
    assert_eq!((&report["failed"], &report["cases"]), (&value!(0), &program["suite"]["count"]), "{report}");
    assert_eq!(report["skipped"], value!([]));
    // Every row that the site launches is checked, each by calls that come near their limits and stay below.
    let kernels = report["ops"].as_array().unwrap().iter().flat_map(|op| op["kernels"].as_array().unwrap());
    let mut rows: Vec<&Value> = kernels.map(|kernel| &kernel["kernel"]).collect();
    rows.sort_by_key(|row| row.as_str().unwrap());
    assert_eq!(value!(rows), program["rows"]);
    let worst = report["ops"].as_array().unwrap().iter().map(|op| op["worst"]["ratio"].as_f64().unwrap());
    let worst = worst.fold(0.0, f64::max);
    assert!((0.05..1.0).contains(&worst), "{worst}");
    assert_eq!(report["browser"]["sha256"], program["sha256"]);
}

/// What `tapml device reports` says of a saved report.
fn expect_read(folder: &Path, report: &Value, code: i32) -> Value {
    let file = folder.join("sent.json");
    std::fs::write(&file, report.to_string()).unwrap();
    json(tapml(folder).args(["device", "reports", "sent.json"]), code)
}

#[test]
fn a_browser_checks_its_device_and_finds_a_wrong_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let (site, compiled) = compile(folder.path(), &draft(), &[]);
    // Other kernels run on other devices, and other calls check them.
    let programs = compiled["programs"].as_array().unwrap().iter();
    let suites: Vec<&Value> = programs.map(|program| &program["suite"]).collect();
    assert!(suites.len() == 4 && suites.iter().all(|s| s["count"].as_u64().unwrap() > 15), "{compiled}");
    let files = Files::serve(&site, Oddities::default());
    let wish = value!({"prompt": "The old man", "max_tokens": 4});
    let steps = |base: &str| value!([{"load": base}, {"write": wish}, {"check": true}, {"write": wish}]);
    let mut runs: Vec<Vec<Value>> = run_node(&files, &site, &steps(&files.url)).into_iter().collect();
    if Browser::is_here() {
        let browser = files.open(&steps("./"));
        runs.push((0..4).map(|_| files.report()).collect());
        drop(browser);
    }
    for posted in &runs {
        expect_right(&posted[2]["report"], &site);
        // The check leaves nothing behind that a text would see.
        assert_eq!(posted[1]["ids"], posted[3]["ids"]);
        let read = expect_read(folder.path(), &posted[2]["report"], 0);
        assert_eq!(
            (&read["reports"][0]["passed"], &read["reports"][0]["model"]),
            (&value!(true), &value!("llama_draft"))
        );
    }

    assert!(plant(&site) > 0);
    let steps = |base: &str| value!([{"load": base}, {"check": true}]);
    let mut runs: Vec<Vec<Value>> = run_node(&files, &site, &steps(&files.url)).into_iter().collect();
    if Browser::is_here() {
        let _browser = files.open(&steps("./"));
        runs.push((0..2).map(|_| files.report()).collect());
    }
    for posted in &runs {
        let report = &posted[1]["report"];
        assert_eq!(wrong(report), ["rms_norm"], "{report}");
        let read = expect_read(folder.path(), report, 1);
        assert_eq!(read["reports"][0]["wrong"], value!(["rms_norm"]));
    }
}

#[test]
fn what_is_no_report_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other.json"), "{\"schema\": 1}").unwrap();
    let said = |file| stderr(tapml(folder.path()).args(["device", "reports", file]), 2);
    let other = said("other.json");
    assert!(other.contains("other.json") && other.contains("no report of a page"), "{other}");
    assert!(said("nowhere.json").contains("nowhere.json"));
}

#[test]
fn what_a_stranger_wrote_is_shown_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let report = value!({
        "schema": 1, "suite": "s", "target": {"platform": "webgpu", "device": "\u{1b}[2J", "driver": "b"},
        "cases": 1, "failed": 0, "skipped": [], "ops": [], "seconds": 0.1,
        "browser": {"agent": "a", "tapml": "0.2.0", "model": "m", "sha256": "", "f16": false},
    });
    std::fs::write(folder.path().join("sent.json"), report.to_string()).unwrap();
    let output =
        tapml(folder.path()).args(["device", "reports", "sent.json"]).assert().code(0).get_output().clone();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("\\u{1b}[2J") && !shown.contains('\u{1b}'), "{shown:?}");
}
