//! Kernels that are right on every recorded call and wrong behind a border that no recorded call reaches.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carved, draft, json, kernel, tapml};
use std::path::Path;

/// `linear` whose second tile of 32 rows repeats the first: prompts of fewer rows do not tell.
fn one_tile(folder: &Path) -> String {
    let file = kernel(folder, "linear");
    let text = std::fs::read_to_string(&file).unwrap();
    let faulty = text.replace("tile(group.y * ROWS, rows,", "tile(group.y * ROWS, min(rows, ROWS),");
    assert_ne!(text, faulty);
    std::fs::write(&file, faulty).unwrap();
    format!("linear={}", file.display())
}

#[test]
fn a_fault_behind_a_border_is_found_by_a_made_call() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, linear) = (folder.path(), carved(folder.path()), one_tile(folder.path()));
    let check = |kernel: &[&str], code| {
        let mut command = tapml(path);
        command.arg("check").arg(&suite).args([
            "--model",
            &draft(),
            "--target",
            "emulator",
            "--op",
            "linear",
        ]);
        json(command.args(kernel), code)["ops"][0].clone()
    };
    let right = check(&[], 0);
    let regimes = &right["regimes"][0];
    assert_eq!(
        (&regimes["kernel"], &regimes["unreached"]),
        (&"linear/portable".into(), &serde_json::Value::Null)
    );
    let count = |name: &str| regimes[name].as_u64().unwrap();
    assert_eq!(count("of"), count("recorded") + count("made"), "{regimes}");
    assert!(count("recorded") > 0 && count("made") > 0 && right["made"].as_u64().unwrap() > 0, "{right:#}");

    let wrong = check(&["--kernel", &linear], 1);
    assert_eq!(wrong["failed"], 0, "no recorded call shows it: {wrong:#}");
    let failures = wrong["made_failures"].as_array().unwrap();
    assert!(failures[0]["case"].as_str().unwrap().starts_with("made.n48.p0."), "{failures:#?}");

    let mut command = tapml(path);
    command.args(["diagnose", &draft(), "--target", "emulator", "--operators", "--kernel", &linear]);
    let report = json(command.arg("--suite").arg(&suite), 1);
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&fault["op"], &fault["kernel"]), (&"linear".into(), &"linear/linear.wgsl".into()));
    let evidence = fault["evidence"].as_str().unwrap();
    assert!(evidence.contains("rows > 32 with a rest"), "{evidence}");
}

#[test]
fn a_fault_of_the_kernel_for_one_row_is_told_of_that_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite) = (folder.path(), carved(folder.path()));
    let file = path.join("one_row.wgsl");
    tapml(path).args(["kernel", "linear/gemv", "--out"]).arg(&file).assert().success();
    let text = std::fs::read_to_string(&file).unwrap();
    // Recorded results are smaller.
    let faulty = text.replace("to_out(total(i, column)", "to_out(clamp(total(i, column), -200.0, 200.0)");
    assert_ne!(text, faulty);
    std::fs::write(&file, faulty).unwrap();
    let mut command = tapml(path);
    command
        .args(["diagnose", &draft(), "--target", "emulator?kind=gpu", "--operators", "--suite"])
        .arg(&suite);
    let report = json(command.args(["--kernel", &format!("linear/gemv={}", file.display())]), 1);
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&fault["op"], &fault["kernel"]), (&"linear".into(), &"linear/one_row.wgsl".into()));
    assert!(fault["evidence"].as_str().unwrap().contains("tiny and large numbers"), "{fault:#}");
    let not_run = report["not_run"].as_array().unwrap();
    assert!(not_run.iter().all(|missing| missing["op"] != "linear"), "it ran for single rows: {not_run:#?}");
}

#[test]
fn what_is_wrong_within_a_fused_kernel_is_told_in_words_of_its_operator() {
    let Some(model) = tapml_testing::extra_model("gemma2") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let file = path.join("window.wgsl");
    let mut command = tapml(path);
    command
        .args(["kernel", "rope_append_attention/gemv", "--dtype", "f16", "--out"])
        .arg(&file)
        .assert()
        .success();
    let text = std::fs::read_to_string(&file).unwrap();
    let faulty = text.replace("first = position + 1u - WINDOW;", "first = position + 2u - WINDOW;");
    assert_ne!(text, faulty);
    std::fs::write(&file, faulty).unwrap();
    let prompts = path.join("prompts.txt");
    std::fs::write(&prompts, "It was late\n").unwrap();
    let mut command = tapml(path);
    command.arg("diagnose").arg(model).args([
        "--target",
        "emulator?kind=gpu",
        "--activation",
        "f16",
        "--operators",
    ]);
    command
        .args(["--kernel", &format!("rope_append_attention/gemv={}", file.display()), "--prompts"])
        .arg(&prompts);
    let report = json(&mut command, 1);
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!(
        (&fault["inner_operator"], &fault["cause"]),
        (&"attention".into(), &"mask_shifted".into()),
        "{fault:#}"
    );
    let evidence = fault["evidence"].as_str().unwrap();
    assert!(evidence.contains("`window` is 127, where the operator says 128"), "{evidence}");
}
