//! The verdict on hand-written kernels: every correct one passes, every wrong one that its storage can show fails.
#![allow(clippy::unwrap_used)]

mod study;

use tapml_graph::DType;

#[test]
fn correct_kernels_pass_and_wrong_ones_fail_on_real_activations() {
    let rows = study::run(&tapml_testing::model("llama"));
    let false_alarms: Vec<String> = rows
        .iter()
        .filter(|r| r.correct && r.is_caught())
        .map(|r| format!("{} {} {}: {:.2} by {:?}", r.op, r.kernel, r.dtype, r.most.ratio, r.most.criterion))
        .collect();
    assert!(false_alarms.is_empty(), "{false_alarms:#?}");
    let missed: Vec<String> = rows
        .iter()
        .filter(|r| !r.correct && !r.is_caught())
        .map(|r| format!("{} {} {}: {:.2}", r.op, r.kernel, r.dtype, r.most.ratio))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(rows.iter().filter(|r| r.dtype == DType::F32 && r.correct).all(|r| r.least > 0.005));
}
