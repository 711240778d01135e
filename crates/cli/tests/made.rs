//! Kernels that are right on every recorded call and wrong behind a border that no recorded call reaches.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, draft, json, kernel, tapml};
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

/// `--kernel` with the printed text of this kernel, a piece of it replaced.
fn change_kernel(folder: &Path, kernel: &str, dtype: &str, [old, new]: [&str; 2]) -> String {
    let file = folder.join("changed.wgsl");
    tapml(folder).args(["kernel", kernel, "--dtype", dtype, "--out"]).arg(&file).assert().success();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(old), "{kernel} has no `{old}`");
    std::fs::write(&file, text.replace(old, new)).unwrap();
    format!("{kernel}={}", file.display())
}

#[test]
fn a_fault_behind_a_border_is_found_by_a_made_call() {
    let folder = tempfile::tempdir().unwrap();
    let (path, suite, linear) = (folder.path(), carve_small(folder.path()), one_tile(folder.path()));
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
    let (path, suite) = (folder.path(), carve_small(folder.path()));
    // Recorded results are smaller.
    let clamped = ["to_out(total(i, column)", "to_out(clamp(total(i, column), -200.0, 200.0)"];
    let kernel = change_kernel(path, "linear/gemv", "f32", clamped);
    let mut command = tapml(path);
    command
        .args(["diagnose", &draft(), "--target", "emulator?kind=gpu", "--operators", "--suite"])
        .arg(&suite);
    let report = json(command.args(["--kernel", &kernel]), 1);
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&fault["op"], &fault["kernel"]), (&"linear".into(), &"linear/changed.wgsl".into()));
    assert!(fault["evidence"].as_str().unwrap().contains("tiny and large numbers"), "{fault:#}");
    let not_run = report["not_run"].as_array().unwrap();
    assert!(not_run.iter().all(|missing| missing["op"] != "linear"), "it ran for single rows: {not_run:#?}");
}

/// The one fault of a model whose fused decode attention is changed so.
fn fault_of_attention(model: &Path, arguments: &[&str], change: [&str; 2]) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let kernel = change_kernel(folder.path(), "rope_append_attention/gemv", "f16", change);
    let mut command = tapml(folder.path());
    command.arg("diagnose").arg(model).args(["--target", "emulator?kind=gpu", "--activation", "f16"]);
    let report = json(command.args(["--operators", "--kernel", &kernel]).args(arguments), 1);
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!(fault["inner_operator"], "attention", "{fault:#}");
    fault.clone()
}

#[test]
fn keys_that_are_left_out_are_found_by_small_numbers_although_the_softmax_rests_on_others() {
    let seen = "let seen = keys < vec4<u32>(end)";
    let gap = "(keys < vec4<u32>(512u)) | (keys >= vec4<u32>(576u)) | vec4<bool>(p < 1000u)";
    let gap = format!("let seen = (keys < vec4<u32>(end)) & ({gap})");
    let fault = fault_of_attention(&tapml_testing::model("llama_head64"), &[], [seen, &gap]);
    assert_eq!(fault["failed"], 1, "{fault:#}");
    assert!(fault["first_bad_case"].as_str().unwrap().starts_with("spread.n1.p1024."), "{fault:#}");
}

#[test]
fn what_is_wrong_within_a_fused_kernel_is_told_in_words_of_its_operator() {
    let Some(model) = tapml_testing::extra_model("gemma2") else { return };
    let folder = tempfile::tempdir().unwrap();
    let prompts = folder.path().join("prompts.txt");
    std::fs::write(&prompts, "It was late\n").unwrap();
    let window = ["first = position + 1u - WINDOW;", "first = position + 2u - WINDOW;"];
    let fault = fault_of_attention(&model, &["--prompts", &prompts.display().to_string()], window);
    assert_eq!(fault["cause"], "mask_shifted", "{fault:#}");
    let evidence = fault["evidence"].as_str().unwrap();
    assert!(evidence.contains("`window` is 127, where the operator says 128"), "{evidence}");
}
