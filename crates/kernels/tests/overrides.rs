//! Kernels that a user brings.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, emulator, null, run_call, run_plan};
use std::path::{Path, PathBuf};
use tapml_device::Device;
use tapml_graph::op::OPS;
use tapml_graph::{DType, ErrorKind, Symbols};
use tapml_kernels::{BuiltIn, CompileOptions, Instance, Overrides, Phase, any_device, compile, plan_node};

const GOOD: &str = "// One invocation per row.
enable f16;
override K: u32;
override EPS: f32;
override UNROLL: u32 = 4u;

@group(0) @binding(0) var<storage, read> x: array<act>;
@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<act>;
@group(0) @binding(3) var<uniform> symbols: Symbols;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = 0.0;
    for (var j = 0u; j < K; j++) {
        sum += f32(x[group.x * K + j]) * f32(x[group.x * K + j]);
    }
    for (var j = 0u; j < K; j++) {
        let scale = weight_value(w[weight_word(j)], j) / sqrt(sum / f32(K) + EPS);
        y[group.x * K + j] = to_act(f32(x[group.x * K + j]) * scale);
    }
}
";

struct File {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn file(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.wgsl");
    std::fs::write(&path, text).unwrap();
    File { path, _folder: folder }
}

fn add(text: &str) -> tapml_graph::Result<Overrides> {
    let file = file(text);
    let mut overrides = Overrides::default();
    overrides.add(&format!("rms_norm={}", file.path.display()))?;
    Ok(overrides)
}

#[test]
fn a_good_kernel_takes_the_place_of_the_built_in_one() {
    let overrides = add(GOOD).unwrap();
    let device = null(true);
    for info in OPS {
        for sample in (info.samples)() {
            let plan = plan_node(
                &sample.op,
                &sample.types(),
                Phase::of_run(&sample.symbols),
                device.info(),
                &overrides,
            )
            .unwrap();
            let own = plan_node(
                &sample.op,
                &sample.types(),
                Phase::of_run(&sample.symbols),
                device.info(),
                &Overrides::default(),
            )
            .unwrap();
            match info.name {
                "rms_norm" => {
                    assert_eq!(plan.kernel, "rms_norm/mine.wgsl");
                    assert_ne!(plan.hash, own.hash);
                    let desc = &plan.launches[0].desc;
                    assert_eq!((desc.workgroup, desc.workgroup_memory, desc.needs_f16), ([1, 1, 1], 0, true));
                }
                _ => assert_eq!(plan, own),
            }
        }
    }
}

#[test]
fn a_good_kernel_computes_the_same_within_a_program() {
    let mut device = emulator("check=all");
    let graph = common::toy_llama(tapml_graph::DType::F32);
    let weights = common::weights(&graph);
    let mut logits = Vec::new();
    for overrides in [Overrides::default(), add(GOOD).unwrap()] {
        let options = CompileOptions { overrides, ..CompileOptions::new(Symbols::np(4, 0)) };
        let program = compile(&graph, device.info(), &options).unwrap();
        let mut instance =
            Instance::load(&mut device, &program, &|name: &str| Ok(weights[name].clone())).unwrap();
        let ids = tapml_graph::Tensor::from_u32(vec![4], vec![1, 2, 3, 4]).unwrap();
        instance.run(&mut device, &Symbols::np(4, 0), &[("ids", &ids)]).unwrap();
        logits.push(instance.read(&mut device, "logits", &Symbols::np(4, 0)).unwrap().to_f64());
        instance.unload(&mut device).unwrap();
    }
    assert!(device.take_findings().is_empty());
    for (a, b) in logits[0].iter().zip(&logits[1]) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn built_in_sources_serve_as_user_kernels() {
    let mut device = emulator("");
    let mut cache = tapml_kernels::KernelCache::new();
    for op in OPS {
        let sample = (op.samples)().remove(0);
        let inputs = sample.tensors(1).unwrap();
        let (plan, _) =
            run_call(&mut device, &mut cache, &sample.op, &sample.types(), &sample.symbols, &inputs).unwrap();
        let main = plan.launches.iter().find(|l| l.desc.name == plan.kernel).unwrap();
        let file = file(&main.desc.source.text);
        let mut overrides = Overrides::default();
        overrides.add(&format!("{}={}", plan.kernel, file.path.display())).unwrap();
        let own =
            plan_node(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), device.info(), &overrides)
                .unwrap();
        assert_eq!(own.kernel, format!("{}/mine.wgsl", op.name));
        let desc = &own.launches.iter().find(|l| l.desc.name == own.kernel).unwrap().desc;
        assert_eq!((&desc.constants, &desc.bindings), (&main.desc.constants, &main.desc.bindings));
    }
}

#[test]
fn directives_of_a_kernel_reach_every_device() {
    let head = "// Mine.\n/* first of all */ enable f16; requires packed_4x8_integer_dot_product;\n\
                diagnostic(off,\n  derivative_uniformity);\n";
    let text = format!("\u{feff}{head}{}", GOOD.replace("enable f16;\n", ""));
    let overrides = add(&text).unwrap();
    let sample = (OPS.iter().find(|i| i.name == "rms_norm").unwrap().samples)().remove(0);
    let (types, inputs) = (sample.types(), sample.tensors(1).unwrap());
    for mut device in devices().into_iter().filter(|device| device.info().features.f16) {
        let mut cache = tapml_kernels::KernelCache::new();
        let own =
            plan_node(&sample.op, &types, Phase::of_run(&sample.symbols), device.info(), &overrides).unwrap();
        assert!(
            own.launches[0].desc.source.prelude.starts_with("requires packed_4x8_integer_dot_product;\n")
        );
        let built_in = plan_node(
            &sample.op,
            &types,
            Phase::of_run(&sample.symbols),
            device.info(),
            &Overrides::default(),
        )
        .unwrap();
        let mut run = |plan: &tapml_kernels::NodePlan| {
            run_plan(device.as_mut(), &mut cache, plan, &sample.op, &types, &sample.symbols, &inputs).unwrap()
        };
        let mine = run(&own);
        for (a, b) in mine[0].to_f64().iter().zip(run(&built_in)[0].to_f64()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
    let error =
        add(&text.replace("requires packed_4x8_integer_dot_product", "requires telepathy")).unwrap_err();
    assert_eq!((error.kind(), error.detail("line")), (ErrorKind::Compile, Some("2")), "{error}");
    let error = add(&text.replace("var sum = 0.0;", "var sum = 0.0 +;")).unwrap_err();
    assert_eq!(error.detail("line"), Some("17"), "{error}");
}

#[test]
fn errors_point_into_the_file() {
    let text = GOOD.replace("var sum = 0.0;", "var sum = 0.0 +;");
    let error = add(&text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Compile);
    assert_eq!(error.detail("line"), Some("14"));
    assert!(error.to_string().contains("mine.wgsl:14:"), "{error}");
    assert_eq!(error.detail("source"), Some("var sum = 0.0 +;"));
    let error = add(&GOOD.replace("var sum = 0.0;", "var sum = 0u;")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Compile);
    assert!(error.detail("line").is_some(), "{error}");
}

#[test]
fn a_different_interface_is_refused_with_what_is_expected_and_found() {
    let cases = [
        (
            GOOD.replace("var<storage, read> w", "var<storage, read_write> w"),
            "@binding(1): expected var<storage, read>, found var<storage, read_write> `w`",
        ),
        (GOOD.replace("@binding(3)", "@binding(4)"), "@binding(3): expected var<uniform>, found none"),
        (
            GOOD.replace("@binding(3)", "@binding(4)"),
            "@binding(4): expected none, found var<uniform> `symbols`",
        ),
        (GOOD.replace("fn main", "fn norm"), "expected a compute entry point `main`, found [norm]"),
        (
            GOOD.replace("override EPS", "override EPSILON").replace("+ EPS", "+ EPSILON"),
            "override `EPSILON` has no default",
        ),
    ];
    for (text, expected) in cases {
        let error = add(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn bad_choices_are_refused() {
    let good = file(GOOD);
    let path = good.path.display();
    let mut overrides = Overrides::default();
    for (spec, kind) in [
        ("rms_norm".to_string(), ErrorKind::InvalidInput),
        (format!("={path}"), ErrorKind::InvalidInput),
        (format!("rmsnorm={path}"), ErrorKind::InvalidInput),
        ("rms_norm=/nowhere/at/all.wgsl".to_string(), ErrorKind::Io),
        ("rms_norm=kernel.hip".to_string(), ErrorKind::Unsupported),
    ] {
        assert_eq!(overrides.add(&spec).unwrap_err().kind(), kind, "{spec}");
    }
    overrides.add(&format!("rms_norm={path}")).unwrap();
    assert!(overrides.add(&format!("rms_norm={path}")).unwrap_err().to_string().contains("two kernels"));
    assert_eq!(overrides.files().count(), 1);
}

/// The plan of the sample of `linear` that any kernel serves.
fn plan_linear(overrides: &Overrides) -> tapml_kernels::NodePlan {
    let one = BuiltIn::find("linear/portable", DType::F32, &any_device()).unwrap();
    let phase = Phase::of_run(&one.sample.symbols);
    plan_node(&one.sample.op, &one.sample.types(), phase, null(false).info(), overrides).unwrap()
}

#[test]
fn a_users_kernel_does_not_promise_what_the_built_in_one_does() {
    let built_in = plan_linear(&Overrides::default());
    assert!(built_in.kernel == "linear/portable" && built_in.accumulate.keeps_chain);
    let text = BuiltIn::find("linear/portable", DType::F32, &any_device()).unwrap().text().unwrap();
    let mut overrides = Overrides::default();
    overrides.add_text("linear", Path::new("mine.wgsl"), &text).unwrap();
    let own = plan_linear(&overrides);
    assert!(own.kernel == "linear/mine.wgsl" && !own.accumulate.keeps_chain);
    assert_eq!(
        (own.accumulate.dtype, own.accumulate.chain),
        (built_in.accumulate.dtype, built_in.accumulate.chain)
    );
}

#[test]
fn a_setting_belongs_to_the_choice_and_not_to_the_file() {
    assert_eq!(Overrides::split("rms_norm=mine.wgsl"), Some(("rms_norm", "mine.wgsl")));
    let with_setting = Overrides::split("linear/portable@outputs=8=mine.wgsl");
    assert_eq!(with_setting, Some(("linear/portable@outputs=8", "mine.wgsl")));
    assert_eq!(Overrides::split("rms_norm="), None);
    assert_eq!(Overrides::split("mine.wgsl"), None);
}
