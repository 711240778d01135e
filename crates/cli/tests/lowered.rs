//! Nodes of the lowered graph as other commands see them: the choice of the next token, and faults in fused operators.
#![allow(clippy::unwrap_used)]

mod common;

use common::{carve_small, draft, json, prompts, stderr, tapml};
use serde_json::Value;
use std::path::Path;

const GPU: &str = "emulator?kind=gpu";

/// The built-in kernel of `norm_linear` with a wrong mean, as `NAME=FILE`.
fn wrong_norm_linear(folder: &Path) -> String {
    let file = folder.join("wrong.wgsl");
    let mut command = tapml(folder);
    command.args(["kernel", "norm_linear/gemv", "--out"]).arg(&file).assert().success();
    let right = std::fs::read_to_string(&file).unwrap();
    let wrong = right.replace("own += dot(v.low, v.low) + dot(v.high, v.high);", "own += dot(v.low, v.low);");
    assert_ne!(right, wrong, "the kernel's text has changed: adapt the fault");
    std::fs::write(&file, wrong).unwrap();
    format!("norm_linear/gemv={}", file.display())
}

fn find<'a>(list: &'a Value, field: &str, value: &str) -> &'a Value {
    let list = list.as_array().unwrap();
    list.iter().find(|one| one[field] == value).unwrap_or_else(|| panic!("no {value} in {list:#?}"))
}

#[test]
fn the_choice_of_the_next_token_is_checked_and_deployed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tapml(folder.path());
    command.args(["migrate", &draft(), "--target", GPU, "--steps", "2", "--prompts"]);
    let report = json(command.arg(prompts(folder.path())), 0);
    let argmax = find(&report["ops"], "op", "argmax");
    assert_eq!((&argmax["state"], &argmax["kernel"]), (&"accepted".into(), &"argmax/portable".into()));
    // Two prompts, each with a prefill and two steps.
    assert_eq!((&argmax["check"]["cases"], &argmax["check"]["failed"]), (&6.into(), &0.into()));
    let deployed = report["deployed"].as_array().unwrap();
    let rows: Vec<&Value> = deployed.iter().filter(|row| row["op"] == "argmax").collect();
    assert_eq!(rows.len(), 2, "{deployed:#?}");
    for row in rows {
        assert_eq!((&row["launches"], &row["cases"]), (&2.into(), &6.into()), "{row}");
    }
    let launches = &report["coverage"]["launches"];
    for phase in ["decode", "prefill"] {
        assert_eq!(launches[phase]["checked"], launches[phase]["of"], "{launches}");
    }
}

#[test]
fn a_wrong_choice_of_the_next_token_fails_its_check() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let file = folder.path().join("last.wgsl");
    tapml(folder.path()).args(["kernel", "argmax", "--out"]).arg(&file).assert().success();
    let right = std::fs::read_to_string(&file).unwrap();
    let wrong = right.replace("select(0u, best[0].y, good)", "select(0u, best[0].y ^ 1u, good)");
    assert_ne!(right, wrong, "the kernel's text has changed: adapt the fault");
    std::fs::write(&file, wrong).unwrap();
    let own = format!("argmax={}", file.display());
    let mut command = tapml(folder.path());
    command.arg("check").arg(&suite).args(["--target", "emulator", "--op", "argmax", "--kernel", &own]);
    let report = json(&mut command, 1);
    assert_eq!(report["failed"], report["cases"]);
    assert_eq!(report["ops"][0]["kernel"], "argmax/last.wgsl");
}

#[test]
fn a_fault_in_a_fused_operator_is_diagnosed_and_reduced() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, wrong) = (carve_small(folder.path()), wrong_norm_linear(folder.path()));
    let mut command = tapml(folder.path());
    command.args(["diagnose", &draft(), "--target", GPU, "--kernel", &wrong, "--suite"]).arg(&suite);
    let report = json(&mut command, 1);
    let [fault] = report["faults"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&fault["op"], &fault["kernel"]), (&"norm_linear".into(), &"norm_linear/wrong.wgsl".into()));
    let evidence = fault["evidence"].as_str().unwrap();
    assert!(evidence.contains("the kernel stands for rms_norm, linear"), "{evidence}");
    assert_eq!(fault["inner_operator"], "rms_norm", "{evidence}");
    assert_eq!(report["not_run"], serde_json::json!([]), "the kernel was run");
    let clean: Vec<&str> =
        report["clean_ops"].as_array().unwrap().iter().map(|op| op.as_str().unwrap()).collect();
    assert!(clean.contains(&"argmax") && clean.contains(&"linear") && !clean.contains(&"norm_linear"));

    let case = fault["first_bad_case"].as_str().unwrap();
    assert!(fault["reproduce"].as_str().unwrap().contains(case));
    let mut command = tapml(folder.path());
    command.arg("reduce").arg(&suite).args(["--case", case, "--target", GPU, "--kernel", &wrong]);
    let reduced = json(command.args(["--out", "bug", "--no-simplify"]), 0);
    assert_eq!((&reduced["op"], &reduced["fails"]), (&"norm_linear".into(), &true.into()));
    assert!(folder.path().join("bug/kernels/0.wgsl").is_file());
    let mut command = tapml(folder.path());
    command.arg("reduce").arg(&suite).args(["--op", "norm_linear", "--target", GPU, "--kernel", &wrong]);
    let again = json(command.args(["--out", "again", "--no-simplify"]), 0);
    assert_eq!(again["case"].as_str().unwrap(), case);
}

#[test]
fn kernels_in_cuda_are_refused_where_they_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path());
    let print = |name: &str, file: &str| {
        let path = folder.path().join(file).display().to_string();
        tapml(folder.path()).args(["kernel", name, "--out", &path]).assert().success();
        path
    };
    let error = |own: &str| {
        let mut command = tapml(folder.path());
        stderr(command.arg("check").arg(&suite).args(["--target", "emulator", "--kernel", own]), 2)
    };
    let (cuda, wgsl) = (print("linear/gemv_cuda", "mine.cu"), print("rms_norm", "norm.wgsl"));
    let told = error(&format!("linear/gemv_cuda={cuda}"));
    assert!(
        told.contains("mine.cu is in CUDA C++, which `emulator`") && told.contains("tapml kernel"),
        "{told}"
    );
    let told = error(&format!("rms_norm={cuda}"));
    assert!(told.contains("mine.cu is in CUDA C++, `rms_norm/portable` is in WGSL"), "{told}");
    let told = error(&format!("linear/gemv_cuda={wgsl}"));
    assert!(told.contains("norm.wgsl is in WGSL, `linear/gemv_cuda` is in CUDA C++"), "{told}");
    let other = print("rms_norm/row_cuda", "norm.cu");
    let told = error(&format!("linear/gemv_cuda={other}"));
    assert!(
        told.contains("expected an entry point `extern \"C\" __global__ void gemv(…)`, found [rms_norm]"),
        "{told}"
    );
}
