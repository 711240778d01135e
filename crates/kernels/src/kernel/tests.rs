//! Every kernel at every sample: naga accepts the source, and the plan tells the truth about it.

use super::*;
use crate::choose::{plan_node, plan_variants};
use crate::overrides::Overrides;
use crate::plan::{Launch, Phase};
use crate::test_device::test_device;
use crate::wgsl::parse_declarations;
use tapml_device::{BindingKind, DeviceInfo, Features, Limits};
use tapml_graph::fusion::FUSIONS;
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{DType, ErrorKind, Op, TensorType};

/// Inputs that are f32 whatever the activations are: pixels, angles, logits and the states of recurrences.
const STAY_F32: &[(&str, usize)] = &[
    ("patches", 0),
    ("rope", 1),
    ("token_shift", 1),
    ("wkv", 5),
    ("wkv7", 6),
    ("causal_conv", 2),
    ("selective_scan", 6),
    ("argmax", 1),
    ("top_k", 0),
    ("exp_sums", 0),
    ("exp_sums", 1),
];

/// The samples of all plain operators, as they are and with every f32 value stored as f16.
fn samples() -> Vec<Sample> {
    let plain: Vec<Sample> = OPS.iter().flat_map(|info| (info.samples)()).collect();
    let mut halves = plain.clone();
    for sample in &mut halves {
        sample.name.push_str(", as f16");
        for (i, input) in sample.inputs.iter_mut().enumerate() {
            let stays = match &sample.op {
                Op::PagedRecurrence(op) => op.recurrence.state_input() == i,
                op => STAY_F32.contains(&(op.name(), i)),
            };
            if input.ty.dtype == DType::F32 && !stays {
                input.ty.dtype = DType::F16;
            }
        }
    }
    plain.into_iter().chain(halves).collect()
}

/// A device with the limits of WebGPU and all that kernels may use.
fn able() -> DeviceInfo {
    let info = test_device(Limits::WEBGPU, true);
    DeviceInfo { features: Features { subgroups: Some((32, 32)), matrices: true, ..info.features }, ..info }
}

fn launches() -> Vec<(String, Launch)> {
    let info = able();
    let mut all = Vec::new();
    let fused = FUSIONS.iter().flat_map(|fusion| (fusion.samples)());
    let served = |s: &Sample| plan_variants(&s.op, &s.types(), Phase::of_run(&s.symbols), &info).is_ok();
    for sample in samples().into_iter().chain(fused.filter(served)) {
        let label = format!("{} {}", sample.op.name(), sample.name);
        for plan in
            plan_variants(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), &info).expect(&label)
        {
            let label = format!("{label} by {}", plan.kernel);
            all.extend(plan.launches.into_iter().map(|launch| (label.clone(), launch)));
        }
    }
    all
}

#[test]
fn the_list_holds_every_operator_and_ends_with_a_portable_kernel() {
    for info in OPS {
        let last = crate::rows_of(info.name).last().map(|row| row.name);
        assert_eq!(last, Some(format!("{}/portable", info.name)).as_deref());
    }
    for fusion in FUSIONS {
        assert!(crate::rows_of(fusion.name).count() > 0, "{}", fusion.name);
    }
    let known = |op: &str| Foreign::is_kind(op) || tapml_graph::op::names().any(|name| name == op);
    let mut names: Vec<&str> = KERNELS.iter().map(|row| row.name).collect();
    assert!(KERNELS.iter().all(|row| known(row.op())));
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
}

#[test]
fn every_row_serves_a_sample_on_a_device_that_has_what_it_needs() {
    for row in KERNELS {
        let found = crate::BuiltIn::find(row.name, DType::F16, &crate::any_device()).unwrap();
        assert!(found.main().is_some(), "{}", row.name);
        assert_eq!(found.kernel, row.name);
    }
}

#[test]
fn built_in_sources_are_known_and_others_are_not() {
    for (label, Launch { mut desc, .. }) in launches() {
        assert!(crate::is_built_in(&desc), "{label}");
        desc.source.prelude.push(' ');
        assert!(!crate::is_built_in(&desc), "{label}");
        desc.source.prelude.pop();
        desc.source.text.push(' ');
        assert!(!crate::is_built_in(&desc), "{label}");
    }
}

#[test]
fn sources_are_valid_and_plans_describe_them() {
    for (label, launch) in launches() {
        let desc = &launch.desc;
        let found = parse_declarations(&desc.source, desc.needs_f16).expect(&label);
        assert_eq!(found.entries, [(desc.entry.clone(), desc.workgroup)], "{label}");
        assert_eq!(found.workgroup_memory, Some(desc.workgroup_memory), "{label}");
        let kinds: Vec<Option<BindingKind>> = found.bindings.iter().map(|b| b.kind).collect();
        assert_eq!(kinds, desc.bindings.iter().map(|&k| Some(k)).collect::<Vec<_>>(), "{label}");
        assert!(found.bindings.iter().zip(0..).all(|(b, i)| b.number == i), "{label}");
        assert_eq!(launch.args.len(), desc.bindings.len(), "{label}");
        for (name, _) in &desc.constants {
            assert!(found.overrides.iter().any(|(own, _)| own == name), "{label}: no override {name}");
        }
        for (name, _) in found.overrides.iter().filter(|(_, default)| !default) {
            assert!(desc.constants.iter().any(|(set, _)| set == name), "{label}: {name} is not set");
        }
    }
}

#[test]
fn kernels_stay_within_the_default_limits_of_webgpu() {
    let info = able();
    for (label, launch) in launches() {
        launch.desc.check_limits(&info).expect(&label);
    }
}

#[test]
fn f16_activations_are_unsupported_without_f16() {
    let info = test_device(Limits::WEBGPU, false);
    for sample in samples() {
        let types = sample.types();
        let activations = sample.op.infer(&types).unwrap();
        let f16 = activations.iter().any(|t| t.dtype == DType::F16)
            || types.first().is_some_and(|t| t.dtype == DType::F16);
        let plan =
            plan_node(&sample.op, &types, Phase::of_run(&sample.symbols), &info, &Overrides::default());
        if f16 {
            let error = plan.expect_err(&sample.name);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert_eq!(error.detail("op"), Some(sample.op.name()));
            assert!(error.to_string().contains("f16"), "{error}");
        } else {
            drop(plan.expect(&sample.name))
        }
    }
}

#[test]
fn hashes_tell_specialisations_apart_and_repeat() {
    let info = test_device(Limits::WEBGPU, true);
    let hash = |s: &Sample| {
        plan_node(&s.op, &s.types(), Phase::of_run(&s.symbols), &info, &Overrides::default()).unwrap().hash
    };
    let all = samples();
    let hashes: Vec<String> = all.iter().map(hash).collect();
    assert_eq!(hashes, all.iter().map(hash).collect::<Vec<_>>());
    for (a, x) in all.iter().zip(&hashes) {
        for (b, y) in all.iter().zip(&hashes) {
            let same = a.op == b.op && a.types() == b.types();
            assert!(
                x != y || same || a.op.name() == "append" || a.op.name() == "last_row",
                "{} {}",
                a.name,
                b.name
            );
        }
    }
}

#[test]
fn weights_beyond_a_binding_are_split_at_rows() {
    let small = Limits { max_binding_size: 16 << 10, ..Limits::WEBGPU };
    let info = test_device(small, true);
    for (op, weight) in [("linear", 1), ("gated_linear", 1), ("embedding", 1)] {
        let row = OPS.iter().find(|info| info.name == op).unwrap();
        let mut sample = (row.samples)().remove(0);
        let width = sample.inputs[weight].ty.shape[1].clone();
        for input in
            sample.inputs.iter_mut().filter(|i| i.ty.shape.len() == 2 && i.ty.shape[0].as_const().is_some())
        {
            input.ty.shape = vec![1000u64.into(), width.clone()];
        }
        let plan = plan_node(
            &sample.op,
            &sample.types(),
            Phase::of_run(&sample.symbols),
            &info,
            &Overrides::default(),
        )
        .unwrap();
        assert!(plan.launches.len() > 1, "{op}");
        let size = sample.inputs[weight].ty.elements().unwrap().as_const().unwrap()
            * sample.inputs[weight].ty.dtype.size() as u64;
        let mut end = 0;
        for launch in &plan.launches {
            let crate::Arg::Input { offset, len, .. } = launch.args[weight] else { panic!("{op}") };
            assert_eq!((offset, offset % 256), (end, 0), "{op}");
            assert!(len > 0 && len <= 16 << 10, "{op}");
            end += len;
        }
        assert_eq!(end, size, "{op}");
    }
}

#[test]
fn stacks_beyond_a_binding_are_split_between_experts() {
    for op in ["expert_linear", "expert_gated_linear"] {
        let samples = (OPS.iter().find(|info| info.name == op).unwrap().samples)();
        let sample = samples.into_iter().find(|s| s.name == "a block for each slot").unwrap();
        let weight = &sample.inputs[1].ty;
        let count = weight.shape[0].as_const().unwrap();
        let size = weight.elements().unwrap().as_const().unwrap() * weight.dtype.size() as u64;
        let plan = |most: u64| {
            let info = test_device(Limits { max_binding_size: most, ..Limits::WEBGPU }, true);
            plan_node(
                &sample.op,
                &sample.types(),
                Phase::of_run(&sample.symbols),
                &info,
                &Overrides::default(),
            )
        };
        let (mut end, mut experts) = (0, 0);
        for launch in plan(2 * size / count).unwrap().launches {
            let constant = |name| launch.desc.constants.iter().find(|c| c.0 == name).unwrap().1;
            assert_eq!((constant("FIRST"), constant("EXPERTS")), (f64::from(experts), count as f64), "{op}");
            assert_eq!(constant("COUNT"), 2.0, "{op}");
            let crate::Arg::Input { offset, len, .. } = launch.args[1] else { panic!("{op}") };
            assert_eq!((offset, len), (end, 2 * size / count), "{op}");
            (end, experts) = (offset + len, experts + 2);
        }
        assert_eq!(end, size, "{op}");
        let error = plan(size / count - 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.detail("asked"), Some((size / count).to_string().as_str()));
        let text = format!("{op}: 1 of the matrices of a weight {weight} takes {} bytes", size / count);
        assert!(error.to_string().starts_with(&text), "{error}");
    }
}

#[test]
fn routers_beyond_the_lanes_are_unsupported_with_the_numbers() {
    use tapml_graph::op::{Route, Scores};
    let op = Route { k: 65, scores: Scores::Sigmoid, normalize: false, scale: 1.0, groups: None };
    let types = [TensorType::new(DType::F32, [1u64, 100])];
    let error = plan_node(
        &op.into(),
        &types,
        Phase::Prefill,
        &test_device(Limits::WEBGPU, true),
        &Overrides::default(),
    )
    .unwrap_err();
    assert_eq!((error.kind(), error.detail("limit")), (ErrorKind::Unsupported, Some("k")));
    assert_eq!((error.detail("asked"), error.detail("offered")), (Some("65"), Some("64")));
}

#[test]
fn a_row_beyond_a_binding_is_unsupported_with_the_numbers() {
    let info = test_device(Limits { max_binding_size: 1 << 10, ..Limits::WEBGPU }, true);
    let sample = (OPS.iter().find(|i| i.name == "linear").unwrap().samples)().remove(2);
    let error =
        plan_node(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), &info, &Overrides::default())
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.detail("limit"), Some("max_binding_size"));
    assert_eq!(error.detail("offered"), Some("1024"));
}
