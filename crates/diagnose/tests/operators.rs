//! Faults of operators: kernels changed in their text are found, each once, with all nodes that run them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Carved, carved_model, diagnose_device, draft, emulator, overrides, tiny, two_wrong_kernels};
use std::collections::HashMap;
use tapml_diagnose::{DiagnoseOptions, FaultKind};
use tapml_exec::{DevicePlatform, Overrides, Platform};
use tapml_graph::{Bytes, DType, Model, Tensor};

#[test]
fn several_wrong_kernels_are_found_in_one_run_and_the_others_are_clean() {
    let carved = draft();
    let kernels = two_wrong_kernels();
    let options = DiagnoseOptions { between: false, ..DiagnoseOptions::default() };
    let found = diagnose_device(&carved, emulator(""), &kernels, &options);
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
    // The choice of the next token is none of the carved graph.
    assert!(found.clean_ops.iter().any(|op| op == "argmax"));
    assert_eq!(found.clean_ops.len() + ops.len(), graph.op_kinds().len() + 1);
    assert!(found.skipped.is_empty());
}

#[test]
fn a_race_that_does_no_harm_here_is_seen_by_the_checking_device() {
    let carved = tiny("mixtral_tiny");
    let kernels = overrides(&[(
        "route",
        &[(
            "    let result = partial[0];\n    workgroupBarrier();\n    return result;",
            "    return partial[0];",
        )],
    )]);
    let found = diagnose_device(&carved, emulator(""), &kernels, &DiagnoseOptions::default());
    let causes: Vec<_> = found.faults.iter().map(|f| (f.op.as_str(), f.cause.as_str(), f.failed)).collect();
    assert_eq!(causes, [("route", "race", 0)]);
    let fault = &found.faults[0];
    assert!(fault.certain && fault.kind == FaultKind::Operator && fault.evidence.contains("route.wgsl:"));
    assert_eq!(
        fault.nodes.len(),
        carved.suite.graph().nodes().iter().filter(|n| n.op.name() == "route").count()
    );
}

#[test]
fn a_router_that_breaks_ties_otherwise_is_right() {
    // Two experts that every token likes alike but for a rounding: which of them is chosen is nobody's fault.
    let carved = tiny("mixtral_tiny");
    let graph = carved.model.graph();
    let mut weights: HashMap<String, Tensor> = HashMap::new();
    for (_, value) in graph.weights() {
        let tensor = carved.model.weight(&value.name).unwrap();
        let mut bytes = tensor.bytes().to_vec();
        if value.name.ends_with("gate.weight") {
            let row = tensor.row_len() * tensor.dtype().size();
            bytes.copy_within(..row, row);
            // 1e-5 and the number after it, in bf16.
            assert_eq!(tensor.dtype(), DType::BF16);
            bytes[..2].copy_from_slice(&0x3728u16.to_le_bytes());
            bytes[row..row + 2].copy_from_slice(&0x3729u16.to_le_bytes());
        }
        let tensor = Tensor::new(tensor.dtype(), tensor.shape().to_vec(), Bytes::new(bytes)).unwrap();
        weights.insert(value.name.clone(), tensor);
    }
    let model = Model::new(graph.clone(), weights).unwrap();
    let prompts: [&[u32]; 2] = [&[3, 14, 15, 9, 26, 5, 35], &[41, 7, 30]];
    let tied = carved_model(model, &prompts, 2);
    let kernels = overrides(&[(
        "route",
        &[(
            "a > b || (a == b && i < j)",
            "select(a > b || (a == b && i < j), i > j, a != b && abs(a - b) <= 3e-7 * abs(b))",
        )],
    )]);
    let found = diagnose_device(&tied, emulator(""), &kernels, &DiagnoseOptions::default());
    let turned = count_changed_routes(&tied, &kernels);
    println!("{turned} choices turned; {:?}", found.whole);
    assert!(turned > 0);
    assert!(found.faults.is_empty(), "{:#?}", found.faults);
    assert!(found.notes.iter().any(|n| n.contains("`route`") && n.contains("either")), "{:?}", found.notes);
}

/// How many recorded calls of routers these kernels answer otherwise than the source did.
fn count_changed_routes(carved: &Carved, kernels: &Overrides) -> usize {
    let graph = carved.suite.graph();
    let routers = carved.suite.cases().filter(|c| graph.node(c.node).op.name() == "route");
    let (calls, recorded): (Vec<_>, Vec<_>) =
        routers.map(|case| carved.suite.call(case, &carved.model).unwrap()).unzip();
    let mut platform = DevicePlatform::new(emulator(""), kernels.clone());
    let mut turned = 0;
    let count = &mut |i: usize, outputs: tapml_graph::Result<Vec<Tensor>>| {
        turned += usize::from(outputs.unwrap()[0].bytes()[..] != recorded[i][0].bytes()[..]);
    };
    platform.replay(&calls, count).unwrap();
    turned
}

#[test]
fn a_kernel_that_fails_at_some_types_only_says_at_which() {
    let carved = tiny("llama_tiny_plain");
    let graph = carved.suite.graph();
    let down = graph.nodes().iter().find(|n| n.name.ends_with("layers.0.mlp.down_proj")).unwrap();
    let width = graph.input_types(down)[0].shape[1].as_const().unwrap();
    // One matrix only has rows of this length.
    let wrong = format!("to_out((value + bias(output)) * select(1.0, 1.001, K == {width}u))");
    let kernels = overrides(&[("linear", &[("to_out(value + bias(output))", &wrong)])]);
    let found = diagnose_device(&carved, emulator(""), &kernels, &DiagnoseOptions::default());
    let ops: Vec<&str> = found.faults.iter().map(|f| f.op.as_str()).collect();
    assert_eq!(ops, ["linear"], "{:#?}", found.faults);
    let fault = &found.faults[0];
    assert!(fault.nodes.iter().all(|n| n.ends_with("down_proj")), "{:?}", fault.nodes);
    assert!(fault.variants.len() > 1 && fault.variants.iter().filter(|v| v.failed > 0).count() == 1);
    assert!(found.whole.unwrap().passed, "the rest is right");
}

#[test]
fn vulkan_is_clean_and_a_wrong_kernel_on_it_is_found() {
    let open = || tapml_wgpu::WgpuDevice::open("vulkan", 0, "");
    if let Err(error) = open() {
        return tapml_testing::skip("vulkan", &error.to_string());
    }
    let carved = tiny("llama_tiny_plain");
    let found =
        diagnose_device(&carved, Box::new(open().unwrap()), &overrides(&[]), &DiagnoseOptions::default());
    assert!(found.faults.is_empty() && found.skipped.is_empty(), "{:#?}", found.faults);
    let kernels = overrides(&[("rms_norm", &[("/ f32(K) + EPS", "/ f32(K - 1u) + EPS")])]);
    let found = diagnose_device(&carved, Box::new(open().unwrap()), &kernels, &DiagnoseOptions::default());
    let ops: Vec<&str> = found.faults.iter().map(|f| f.op.as_str()).collect();
    assert_eq!(ops, ["rms_norm"]);
}

/// Launches that join nodes are taken apart where values are looked at, and round otherwise: that is no fault.
#[test]
fn a_model_whose_launches_are_joined_is_clean() {
    let carved = draft();
    let device = emulator("kind=gpu");
    let capacity = tapml_graph::Symbols::np(16, 16);
    let options = tapml_kernels::CompileOptions::new(capacity);
    let program = tapml_kernels::compile(carved.model.graph(), device.info(), &options).unwrap();
    assert!(
        program.steps.iter().any(|s| s.phase() == Some(tapml_kernels::Phase::Decode)),
        "nothing is fused"
    );
    let found = diagnose_device(&carved, device, &overrides(&[]), &DiagnoseOptions::default());
    assert!(found.faults.is_empty(), "{:#?}", found.faults);
}
