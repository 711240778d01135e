//! Kernels as people write them by hand: what did not run, races that only many rows show, plain serial sums, functions of a
//! device that are poor, and which call does most harm.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    carve_model, change_kernel, diagnosed_platform, draft, emulator, overrides, tiny, two_wrong_kernels,
};
use std::path::Path;
use tapml_diagnose::{DiagnoseOptions, Diagnosis, html};
use tapml_exec::{DevicePlatform, Overrides, Platform};

/// Operators alone, without harm.
fn plain() -> DiagnoseOptions {
    DiagnoseOptions { between: false, impact: false, ..DiagnoseOptions::default() }
}

/// A diagnosis of an emulator with these options, which can be opened once more.
fn find_faults(
    carved: &common::Carved,
    device: &str,
    kernels: &Overrides,
    options: &DiagnoseOptions,
) -> Diagnosis {
    let open = |kernels| DevicePlatform::new(emulator(device), kernels);
    let mut target = open(kernels.clone());
    let mut checker = DevicePlatform::new(emulator("check=all"), kernels.clone());
    let reopen = |kernels| Ok(Box::new(open(kernels)) as Box<dyn Platform>);
    diagnosed_platform(carved, &mut target, Some(&mut checker), kernels, Some(&reopen), options)
}

#[test]
fn nothing_that_did_not_run_is_clean() {
    let carved = draft();
    let kernels = overrides(&[("rope", &[("@workgroup_size(256)", "@workgroup_size(1024)")])]);
    let found = find_faults(&carved, "", &kernels, &DiagnoseOptions { audit: false, ..plain() });
    assert!(found.faults.is_empty() && !found.holds());
    let [not_run] = found.not_run.as_slice() else { panic!("{:?}", found.not_run) };
    assert_eq!((not_run.op.as_str(), not_run.kernel.as_str()), ("rope", "rope/rope.wgsl"));
    assert!(not_run.reason.contains("1024"), "{}", not_run.reason);
    assert!(!found.clean_ops.iter().any(|op| op == "rope"));
}

/// A kernel that races only in calls of more rows than this, without harm.
fn races_above(rows: u32) -> Overrides {
    let waste = "var<workgroup> waste: f32;\n@compute";
    let race = format!(
        "let count = row_count(symbols) * K;\n    if row_count(symbols) > {rows}u {{ waste = f32(lane); }}"
    );
    overrides(&[("rope", &[("@compute", waste), ("let count = row_count(symbols) * K;", &race)])])
}

#[test]
fn a_race_that_only_many_rows_show_is_seen() {
    let long: Vec<u32> = (0..45).map(|i| 7 + 31 * i % 900).collect();
    let carved = carve_model(&tapml_testing::model("llama_draft"), &[&long, &[90, 12, 400]], 1);
    for rows in [16, 32, 40] {
        let found = find_faults(&carved, "", &races_above(rows), &plain());
        let causes: Vec<_> =
            found.faults.iter().map(|f| (f.op.as_str(), f.cause.as_str(), f.failed)).collect();
        assert_eq!(causes, [("rope", "race", 0)], "beyond {rows} rows");
        let watched = found.watched.unwrap();
        assert!(watched.calls > 10 && watched.left_out.is_empty(), "{watched:?}");
    }
}

#[test]
fn what_the_checking_device_cannot_run_is_counted_and_named() {
    let carved = tiny("llama_tiny_plain");
    let kernels = overrides(&[]);
    // Joined launches and kernels of GPUs are others than those of the checking device.
    let found = find_faults(&carved, "kind=gpu", &kernels, &plain());
    let watched = found.watched.unwrap();
    assert!(!watched.left_out.is_empty(), "both run the same kernels");
    assert!(watched.left_out.iter().all(|l| l.reason.contains("another kernel") && !l.kernel.is_empty()));
    let note = found.notes.iter().find(|n| n.contains("were left out")).expect("a note names them");
    assert!(note.contains(&watched.left_out[0].kernel), "{note}");
}

/// A product that adds up one after the other, as people write it first.
const SERIAL: (&str, &str) = (
    "    if rows <= FEW {",
    "    if true {
        for (var i = lane; i < rows * OUTPUTS; i += LANES) {
            let row = i / OUTPUTS;
            let output = group.x * OUTPUTS + i % OUTPUTS;
            if group.y == 0u && output < O {
                var sum = 0.0;
                for (var k = 0u; k < K; k++) {
                    let at = output * K + k;
                    sum += f32(x[row * K + k]) * weight_value(w[weight_word(at)], at);
                }
                store(row, output, sum);
            }
        }
    } else if rows <= FEW {",
);

#[test]
fn a_plain_serial_sum_is_right_if_declared_and_told_how_to_declare_if_not() {
    let ids: Vec<u32> = (0..24).map(|i| 11 + 37 * i % 900).collect();
    let Some(model) = tapml_testing::extra_model("gpt_neox") else { return };
    let carved = carve_model(&model, &[&ids], 1);
    let text = change_kernel("linear", &[SERIAL]);
    let of = |head: &str| {
        let mut kernels = Overrides::default();
        kernels.add_text("linear", Path::new("serial.wgsl"), &format!("{head}\n{text}")).unwrap();
        find_faults(&carved, "", &kernels, &DiagnoseOptions { audit: false, ..plain() })
    };
    let undeclared = of("// Written by hand.");
    for fault in &undeclared.faults {
        assert_eq!((fault.op.as_str(), fault.cause.as_str()), ("linear", "long_sum"), "{}", fault.evidence);
        assert!(fault.evidence.contains("// accumulate: f32 serial") && !fault.certain, "{}", fault.evidence);
    }
    println!("undeclared: {:?}", undeclared.faults.iter().map(|f| f.worst_ratio).collect::<Vec<_>>());
    let declared = of("// accumulate: f32 serial");
    assert!(declared.faults.is_empty(), "{:#?}", declared.faults);
    // A declared chain that is too short is judged as such: one that is long enough passes what a short one does not.
    let ratio = |found: &Diagnosis| found.faults.iter().map(|f| f.worst_ratio).fold(0.0, f64::max);
    let short = of("// accumulate: f32 chain=1");
    assert!(ratio(&short) > 1.0 && ratio(&short) >= ratio(&undeclared), "{}", ratio(&short));
    assert!(short.faults.iter().all(|f| f.cause == "long_sum"), "{:#?}", short.faults);
}

#[test]
fn a_function_of_the_device_that_is_poor_is_told() {
    let carved = tiny("llama_tiny_plain");
    // `exp` of the device, and results a little too large so that the kernel fails.
    let text = change_kernel("gated_linear", &[])
        .replace("exp_accurate(", "exp(")
        .replace("to_act(", "to_act(1.0002 * ");
    let mut kernels = Overrides::default();
    kernels.add_text("gated_linear", Path::new("gated.wgsl"), &text).unwrap();
    let of = |device: &str| {
        let found = find_faults(&carved, device, &kernels, &DiagnoseOptions { audit: false, ..plain() });
        let fault = found.faults.iter().find(|f| f.op == "gated_linear").expect("it fails");
        (fault.certain, fault.evidence.clone())
    };
    let (certain, evidence) = of("profile=fast-math");
    assert!(certain || evidence.contains("this device's own `exp` is off by up to"), "{evidence}");
    let (_, evidence) = of("");
    assert!(!evidence.contains("this device's own"), "{evidence}");
}

#[test]
fn the_page_orders_faults_by_harm_and_says_how_sure_it_is() {
    let carved = draft();
    let kernels = two_wrong_kernels();
    let options = DiagnoseOptions { between: false, audit: false, ..DiagnoseOptions::default() };
    let mut found = find_faults(&carved, "", &kernels, &options);
    assert_eq!(found.faults.iter().map(|f| f.op.as_str()).collect::<Vec<_>>(), ["rms_norm", "rope"]);
    let harm: Vec<f64> =
        found.faults_by_impact().iter().map(|f| f.output_impact.as_ref().unwrap().kl).collect();
    assert!(harm[0] >= harm[1] && harm[1] > 0.0, "{harm:?}");
    for fault in &mut found.faults {
        (fault.worst_ratio, fault.certain) = (1.00001, fault.op == "rope");
    }
    let page = html(&found).unwrap();
    let (rope, norm) = (page.find("data-op=\"rope\"").unwrap(), page.find("data-op=\"rms_norm\"").unwrap());
    assert_eq!(rope < norm, found.faults_by_impact()[0].op == "rope");
    assert!(page.contains("<b>1.00001</b> times the allowed error"), "a ratio that fails looks like one");
    assert!(page.contains(">certain</span>") && page.contains(">probable</span>"));
}

#[test]
fn harm_is_that_of_the_call_that_hurts_most() {
    let carved = draft();
    // Wrong in decode steps only, and by far: a prompt's call has no harm to tell.
    let decode = "let first = e - second * stride;\n        if row_count(symbols) == 1u { y[e] = to_act(7.0 * f32(x[e])); continue; }";
    let kernels = overrides(&[("rope", &[("let first = e - second * stride;", decode)])]);
    let options = DiagnoseOptions { between: false, audit: false, ..DiagnoseOptions::default() };
    let found = find_faults(&carved, "", &kernels, &options);
    let impact = found.faults[0].output_impact.as_ref().expect("measured");
    assert!(impact.kl > 1e-3 && !impact.case.contains(".s0."), "{impact:?}");
}

#[test]
fn a_probe_counts_although_recorded_calls_fail() {
    let carved = tiny("gemma2_tiny");
    // A little too large everywhere, and NaN far beyond what is recorded.
    let formula = "let e = exp(2.0 * v / CAP);\n    return 1.0003 * CAP * (e - 1.0) / (e + 1.0);";
    let kernels = overrides(&[("softcap", &[("return CAP * tanh_accurate(v / CAP);", formula)])]);
    let found = find_faults(&carved, "", &kernels, &DiagnoseOptions { audit: false, ..plain() });
    let [fault] = found.faults.as_slice() else { panic!("{:#?}", found.faults) };
    assert!(fault.op == "softcap" && fault.failed > 0, "{fault:#?}");
    assert!(fault.evidence.contains("beside the recorded calls a made-up one fails"), "{}", fault.evidence);
    assert!(fault.evidence.contains("gives NaN"), "{}", fault.evidence);
}
