//! Faults of operators: kernels changed in their text are found, each once, with all nodes that run them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{diagnosed, draft, emulator, overrides};
use tapml_diagnose::{DiagnoseOptions, FaultKind};

#[test]
fn several_wrong_kernels_are_found_in_one_run_and_the_others_are_clean() {
    let carved = draft();
    let kernels = overrides(&[
        ("rms_norm", &[("/ f32(K) + EPS", "/ f32(K - 1u) + EPS")]),
        ("rope", &[("b * cosine + a * sine", "b * cosine - a * sine")]),
    ]);
    let options = DiagnoseOptions { between: false, ..DiagnoseOptions::default() };
    let found = diagnosed(&carved, emulator(""), &kernels, &options);
    let ops: Vec<&str> = found.faults.iter().map(|f| f.op.as_str()).collect();
    assert_eq!(ops, ["rms_norm", "rope"]);
    let graph = carved.suite.graph();
    for fault in &found.faults {
        assert_eq!(fault.kind, FaultKind::Operator);
        let nodes = graph.nodes().iter().filter(|n| n.op.name() == fault.op);
        assert_eq!(fault.nodes, nodes.map(|n| n.name.clone()).collect::<Vec<_>>());
        assert!(fault.worst_ratio > 1.0 && fault.failed > 0 && fault.failed <= fault.cases);
        assert!(fault.first_bad_case.starts_with("p0.s0."), "{}", fault.first_bad_case);
        assert!(!fault.evidence.is_empty());
        let impact = fault.output_impact.as_ref().unwrap();
        assert!(impact.kl > 0.0 && impact.positions > 0, "{impact:?}");
    }
    assert!(!found.clean_ops.iter().any(|op| ops.contains(&op.as_str())));
    assert_eq!(found.clean_ops.len() + ops.len(), graph.op_kinds().len());
    assert!(found.skipped.is_empty());
}
