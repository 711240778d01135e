//! `tapml kernel`: what it prints serves unchanged in the place of the built-in kernel.
#![allow(clippy::unwrap_used)]

mod common;

use common::{draft, json, stderr, tapml};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Prints the kernel of this name to a file.
fn print_kernel(folder: &Path, name: &str) -> String {
    let file = folder.join(format!("{}.wgsl", name.replace('/', "-"))).display().to_string();
    let mut command = tapml(folder);
    command.args(["kernel", name, "--out", &file]).assert().success().stdout("");
    file
}

#[test]
fn the_list_names_every_operator_with_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let report = json(tapml(folder.path()).arg("kernel"), 0);
    let kernels = report["kernels"].as_array().unwrap();
    let ops: BTreeSet<&str> = kernels.iter().map(|k| k["op"].as_str().unwrap()).collect();
    let (others, own): (BTreeSet<&str>, BTreeSet<&str>) = ops.iter().partition(|op| op.contains('.'));
    assert_eq!(own, tapml::graph::op::names().collect());
    assert!(others.contains("onnx.Conv"), "{others:?}");
    let sources = tapml_testing::root().join("crates/kernels/src/kernel");
    for kernel in kernels {
        assert_eq!(kernel["accumulate"]["dtype"], "f32");
        assert!(kernel["launches"].as_array().unwrap().contains(&kernel["kernel"]), "{kernel}");
        for file in kernel["files"].as_array().unwrap() {
            assert!(sources.join(file.as_str().unwrap()).is_file(), "{kernel}");
        }
    }
    let files = |name: &str| kernels.iter().find(|k| k["kernel"] == name).unwrap()["files"].clone();
    assert_eq!(files("silu/portable"), serde_json::json!(["elementwise/portable.wgsl", "silu/formula.wgsl"]));
    let row = |name: &str| kernels.iter().find(|k| k["kernel"] == name).unwrap();
    let needs = |name: &str| row(name)["needs"].clone();
    assert_eq!(needs("silu/portable"), serde_json::json!([]));
    assert_eq!(needs("norm_linear/gemv"), serde_json::json!(["subgroup operations"]));
    assert_eq!(needs("linear/gemm_coopmat"), serde_json::json!(["subgroup operations", "tensor cores"]));
    assert_eq!(needs("linear/gemm_hopper"), serde_json::json!(["CUDA and compute capability 9.0"]));
    assert_eq!(
        (&row("linear/gemv")["rows"], &row("linear/gemv")["language"]),
        (&"one row".into(), &"wgsl".into())
    );
    assert_eq!(row("linear/gemv_cuda")["language"], "cuda");
    let rows = tapml::kernels::KERNELS.iter().flat_map(|row| std::iter::once(row.name).chain(row.also));
    let listed = kernels.iter().map(|k| k["kernel"].as_str().unwrap());
    assert_eq!(listed.collect::<Vec<_>>(), rows.collect::<Vec<_>>(), "every row of the kernel list");
    let table = tapml(folder.path()).arg("kernel").assert().success().get_output().stdout.clone();
    let table = String::from_utf8(table).unwrap();
    assert!(kernels.iter().all(|k| table.contains(k["kernel"].as_str().unwrap())), "{table}");
}

#[test]
fn the_report_holds_what_the_text_tells() {
    let folder = tempfile::tempdir().unwrap();
    let report = json(tapml(folder.path()).args(["kernel", "append", "--dtype", "f16"]), 0);
    assert_eq!(report["launches"], serde_json::json!(["append/copy", "append/portable"]));
    assert_eq!(
        (&report["kernel"], &report["bindings"][2]["kind"]),
        (&"append/portable".into(), &"uniform".into())
    );
    let text = report["text"].as_str().unwrap();
    for fact in ["alias act = f16;", "f16[", "append/copy before it", "--kernel append=FILE", "fn main("] {
        assert!(text.contains(fact), "{fact}: {text}");
    }
    let stdout = tapml(folder.path()).args(["kernel", "append", "--dtype", "f16"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(stdout).unwrap(), text);
    let on_device =
        json(tapml(folder.path()).args(["kernel", "linear", "--target", "emulator?profile=mobile"]), 0);
    assert_eq!(on_device["kernel"], "linear/portable");
}

#[test]
fn kernels_for_other_devices_are_printed_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let report = json(tapml(folder.path()).args(["kernel", "linear/gemv_cuda"]), 0);
    let text = report["text"].as_str().unwrap();
    let file = tapml_testing::root().join("crates/kernels/src/kernel/cuda/gemv.cu");
    let (_, code) = text.split_once("\n\n").unwrap();
    assert_eq!(
        code.trim(),
        std::fs::read_to_string(file).unwrap().trim(),
        "as the file has it, includes too"
    );
    let headers: Vec<&str> =
        report["headers"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!((headers.first(), headers.last()), (Some(&"base.cuh"), Some(&"gemv.cuh")));
    for fact in
        ["`#include \"NAME\"`", "gemv_digits.cuh", "It needs CUDA and compute capability 8.0 at least."]
    {
        assert!(text.replace("\n//", "").contains(fact), "{fact}: {text}");
    }
    for (name, needs) in [
        ("linear/gemm_hopper", "It needs CUDA and compute capability 9.0."),
        ("linear/gemv", "It needs subgroup operations."),
        ("norm_linear/gemv", "It needs subgroup operations."),
        ("linear/gemm_coopmat", "It needs subgroup operations and tensor cores."),
    ] {
        let report = json(tapml(folder.path()).args(["kernel", name]), 0);
        assert_eq!(report["kernel"], name);
        assert!(report["text"].as_str().unwrap().contains(needs), "{name}");
    }
}

#[test]
fn unknown_operators_and_platforms_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = |arguments: &[&str]| stderr(tapml(folder.path()).arg("kernel").args(arguments), 2);
    assert!(error(&["rmsnorm"]).contains("did you mean `rms_norm`?"));
    assert!(error(&["add/column"]).contains("known: add/portable, add/row"));
    let fused = error(&["norm_linear"]);
    assert!(fused.contains("has no portable kernel") && fused.contains("norm_linear/gemv_cuda"), "{fused}");
    assert!(error(&["add", "--target", "cpu"]).contains("no device"));
    assert!(error(&["add", "--out", "no/such/folder.wgsl"]).contains("no/such"));
    assert!(error(&["--out", "mine.wgsl"]).contains("required"));
}

/// Every operator of a Llama, fused and not, by the printed kernels on a device that checks them.
#[test]
fn printed_kernels_pass_the_check_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prompt.txt"), "Once upon\n").unwrap();
    let mut seen = BTreeSet::new();
    for fuse in [&[][..], &["--no-fuse"]] {
        let suite = folder.path().join(format!("{}.suite", fuse.len()));
        let mut carve = tapml(folder.path());
        carve.args(["carve", &draft(), "--steps", "1", "--prompts", "prompt.txt"]).args(fuse);
        carve.arg("--out").arg(&suite).assert().success();
        let check = |kernels: &[String]| -> Value {
            let mut command = tapml(folder.path());
            command.arg("check").arg(&suite).args(["--target", "emulator?check=all"]);
            for kernel in kernels {
                command.args(["--kernel", kernel]);
            }
            json(&mut command, 0)
        };
        let built_in = check(&[]);
        let ops = built_in["ops"].as_array().unwrap();
        let names: Vec<&str> = ops.iter().map(|op| op["op"].as_str().unwrap()).collect();
        let kernels: Vec<String> =
            names.iter().map(|op| format!("{op}={}", print_kernel(folder.path(), op))).collect();
        let own = check(&kernels);
        for (before, after) in ops.iter().zip(own["ops"].as_array().unwrap()) {
            let op = before["op"].as_str().unwrap();
            assert_eq!(after["kernel"], format!("{op}/{op}.wgsl"));
            assert_eq!(after["worst"]["ratio"], before["worst"]["ratio"], "{op}");
            seen.insert(op.to_string());
        }
    }
    for op in ["silu", "mul", "add", "add_rms_norm", "gated_linear", "attention", "append", "rope_angles"] {
        assert!(seen.contains(op), "{op} of {seen:?}");
    }
}

#[test]
fn a_kernel_that_no_node_runs_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let suite = common::carve_small(folder.path());
    let file = print_kernel(folder.path(), "add/row");
    let mut command = tapml(folder.path());
    command.arg("check").arg(&suite).args(["--target", "emulator", "--op", "rope", "--kernel"]);
    let error = stderr(command.arg(format!("add/row={file}")), 0);
    assert!(error.contains("was not used: no node ran `add/row`"), "{error}");
    let mut command = tapml(folder.path());
    command.arg("check").arg(&suite).args(["--target", "emulator", "--op", "rope", "--kernel"]);
    let error = stderr(command.arg(format!("rope={}", print_kernel(folder.path(), "rope"))), 0);
    assert!(!error.contains("was not used"), "{error}");
}

/// On an emulator with all that WGSL kernels can ask for: only those in CUDA C++ are not run.
#[test]
fn a_device_check_runs_every_kernel_on_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let target = "emulator?kind=gpu&matrices=on";
    let report = json(tapml(folder.path()).args(["device", "check", target, "--ops"]), 0);
    assert_eq!(report["failed"], 0);
    let info: tapml::device::DeviceInfo = serde_json::from_value(report["target"].clone()).unwrap();
    let rows = report["ops"].as_array().unwrap().iter().filter_map(|op| op["kernels"].as_array()).flatten();
    let ran: BTreeSet<&str> = rows.map(|row| row["kernel"].as_str().unwrap()).collect();
    let served = tapml::kernels::KERNELS.iter().filter(|row| row.needs.missing(&info).is_none());
    let waiting: Vec<&str> = served.map(|row| row.name).filter(|name| !ran.contains(name)).collect();
    assert!(waiting.is_empty(), "not run: {waiting:?}");
    assert!(ran.len() > tapml::graph::op::names().count(), "{ran:?}");
}
