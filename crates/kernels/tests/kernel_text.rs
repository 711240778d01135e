//! The texts of built-in kernels as files to start from: each serves in the place of what it was printed from.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{emulator, run_plan};
use std::path::Path;
use tapml_device::{BindingKind, Device, KernelDesc, Language, Limits};
use tapml_graph::fusion;
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{DType, ErrorKind, Tensor};
use tapml_kernels::{
    BuiltIn, Choice, KernelCache, Overrides, Phase, SETTINGS, TuningCache, any_device, kernel_text, plan_node,
};

fn all_kernels() -> Vec<BuiltIn> {
    let mut all = BuiltIn::all(&any_device()).unwrap();
    let settings = SETTINGS.iter().flat_map(|row| row.kernels.iter().map(|kernel| row.setting.name(kernel)));
    let portable = settings.filter(|name| name.contains("/portable@"));
    all.extend(portable.map(|name| BuiltIn::find(&name, DType::F32, &any_device()).unwrap()));
    let find = |one: &BuiltIn| BuiltIn::find(&one.kernel, DType::F16, &any_device()).unwrap();
    let halves: Vec<BuiltIn> = all.iter().map(find).collect();
    let mut all: Vec<BuiltIn> = all.into_iter().chain(halves).collect();
    all.retain(|one| one.desc().unwrap().source.language == Language::Wgsl);
    all
}

#[test]
fn kernels_in_cuda_are_printed_too() {
    let mut all = BuiltIn::all(&any_device()).unwrap();
    all.retain(|one| one.desc().unwrap().source.language == Language::Cuda);
    assert!(all.len() > 20, "{}", all.len());
    for one in all {
        let text = one.text().unwrap();
        assert!(text.contains("__global__") && text.contains(&one.kernel), "{}", one.kernel);
        assert_eq!(one.bindings().unwrap().len(), one.desc().unwrap().bindings.len(), "{}", one.kernel);
    }
}

/// Operator or variant, and text, to be used instead of the built-in kernel.
fn overrides(name: &str, text: &str) -> Overrides {
    let mut overrides = Overrides::default();
    overrides.add_text(name, Path::new("mine.wgsl"), text).unwrap();
    overrides
}

fn run(device: &mut dyn Device, sample: &Sample, overrides: &Overrides) -> Vec<Tensor> {
    let (types, inputs) = (sample.types(), sample.tensors(7).unwrap());
    let plan =
        plan_node(&sample.op, &types, Phase::of_run(&sample.symbols), device.info(), overrides).unwrap();
    let mut cache = KernelCache::new();
    run_plan(device, &mut cache, &plan, &sample.op, &types, &sample.symbols, &inputs).unwrap()
}

fn are_equal(a: &[Tensor], b: &[Tensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes()[..] == b.bytes()[..])
}

/// No kernel of one's own, and this built-in one chosen for the sample.
fn choose_kernel(one: &BuiltIn, sample: &Sample) -> Overrides {
    let mut choices = TuningCache::new(&any_device());
    choices.add(Choice::new(&sample.op, &sample.types(), &one.kernel, Vec::new()));
    let mut overrides = Overrides::default();
    overrides.choose(choices);
    overrides
}

/// Whether the kernel's interface depends on the case.
fn is_composed(one: &BuiltIn) -> bool {
    ["/gemv", "/gemm_coopmat", "rope_append"].iter().any(|part| one.kernel.contains(part))
}

/// What a launch binds and sets, by which a text may be refused.
fn interface(desc: &KernelDesc) -> (&[BindingKind], Vec<&str>) {
    (&desc.bindings, desc.constants.iter().map(|(name, _)| name.as_str()).collect())
}

#[test]
fn every_printed_kernel_serves_in_its_place() {
    let mut device = emulator("check=all&kind=gpu&matrices=on");
    for one in all_kernels() {
        // The device on which the kernel was planned, so that its rows of the list serve.
        let info = one.device(&any_device());
        let text = one.text().unwrap();
        let own = overrides(one.choice(), &text);
        let mut replaced = 0;
        for sample in one.row().unwrap().samples() {
            let chosen = choose_kernel(&one, &sample);
            let phase = Phase::of_run(&sample.symbols);
            let plan = |own: &Overrides| plan_node(&sample.op, &sample.types(), phase, &info, own);
            let Ok(before) = plan(&chosen) else {
                assert!(fusion::find(one.op).is_some(), "only fused operators may be left to their parts");
                continue;
            };
            let after = plan(&own);
            if before.kernel != one.kernel {
                assert_eq!(before, after.unwrap(), "{}: {}", one.kernel, sample.name);
                continue;
            }
            // A text that is put together for a case, such as one without a bias, takes the place of that case's.
            let printed = &one.desc().unwrap().source.text;
            let main = || before.launches.iter().filter(|launch| launch.desc.name == one.kernel);
            let of_case = main().any(|launch| launch.desc.source.text == *printed);
            if !of_case {
                // It is told where it does not fit; where it fits, it serves.
                let at = format!("{}: {} {after:?}", one.kernel, sample.name);
                let own = one.desc().unwrap();
                let fits = main().any(|launch| interface(&launch.desc) == interface(own));
                let serves = after.is_ok_and(|plan| plan.kernel.ends_with("/mine.wgsl"));
                assert!(serves || is_composed(&one) || !fits, "{at}");
                continue;
            }
            let after = after.unwrap();
            replaced += 1;
            assert_eq!(after.kernel, format!("{}/mine.wgsl", one.op));
            for (before, after) in before.launches.iter().zip(&after.launches) {
                let others = before.desc.name != one.kernel;
                assert_eq!(others, before.desc == after.desc, "{}: {}", one.kernel, sample.name);
                let facts = |launch: &tapml_kernels::Launch| {
                    let desc = launch.desc.clone();
                    (desc.constants, desc.bindings, desc.workgroup, desc.workgroup_memory, desc.needs_f16)
                };
                assert_eq!(facts(before), facts(after), "{}: {}", one.kernel, sample.name);
            }
        }
        assert!(replaced > 0, "{}", one.kernel);
        let chosen = choose_kernel(&one, &one.sample);
        let (built_in, mine) = (run(&mut device, &one.sample, &chosen), run(&mut device, &one.sample, &own));
        assert!(are_equal(&built_in, &mine), "{}", one.kernel);
    }
    assert!(device.take_findings().is_empty());
}

#[test]
fn every_operator_has_a_printed_kernel_that_tells_what_it_is_given() {
    let all = all_kernels();
    for op in OPS.iter().map(|info| info.name) {
        let first = kernel_text(op, DType::F32, &any_device()).unwrap();
        assert!(all.iter().any(|one| one.op == op && one.text().unwrap() == first), "{op}");
    }
    for one in &all {
        let text = one.text().unwrap();
        let (comment, code) = text.split_once("\n\n").unwrap();
        assert!(comment.lines().all(|line| line.starts_with("//") && line.len() <= 140), "{comment}");
        let desc = one.desc().unwrap();
        assert_eq!(code.trim_end(), desc.source.text.trim());
        let told = desc.constants.iter().map(|(name, value)| format!("{name}={value}"));
        let squeezed = comment.replace("\n//", "");
        for fact in told.chain([one.kernel.clone(), format!("--kernel {}=FILE", one.choice())]) {
            assert!(squeezed.contains(&fact), "{}: {fact}\n{comment}", one.kernel);
        }
        let bindings = one.bindings().unwrap();
        assert_eq!(bindings.len(), desc.bindings.len());
        for (i, binding) in bindings.iter().enumerate() {
            assert!(comment.contains(&format!("{i} {}: ", binding.name)), "{comment}");
            assert!(code.contains(&format!("@binding({i})")), "{comment}");
        }
        for launch in one.plan.launches.iter().filter(|launch| launch.desc.name != one.kernel) {
            assert!(comment.contains(&launch.desc.name), "{comment}");
        }
        assert!(comment.contains("fn row_count(s: Symbols) -> u32"), "{comment}");
    }
    let names: Vec<&str> = all.iter().map(|one| one.choice()).collect();
    for name in ["add", "add/row", "mul/row", "lerp/row", "append", "wkv"] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(!names.contains(&"append/copy"), "it is no main kernel");
}

#[test]
fn a_formula_stands_in_the_printed_text_and_may_change() {
    let mut device = emulator("check=all");
    let one = BuiltIn::find("relu", DType::F32, &any_device()).unwrap();
    let text = one.text().unwrap();
    assert!(!one.desc().unwrap().source.prelude.contains("fn formula"));
    let zero = text.replace(
        "fn formula(v: f32) -> f32 {",
        "fn formula(v: f32) -> f32 {\n    return 2.5;\n}\n\nfn unused(v: f32) -> f32 {",
    );
    assert_ne!(zero, text);
    let outputs = run(&mut device, &one.sample, &overrides("relu", &zero));
    assert!(outputs[0].to_f32().iter().all(|&value| value == 2.5));
}

/// Kernels for other inputs have other constants and stay, or are given beside.
#[test]
fn variants_are_replaced_one_by_one() {
    let info = any_device();
    let text = |name: &str| kernel_text(name, DType::F32, &info).unwrap();
    let mut both = Overrides::default();
    both.add_text("add", Path::new("like.wgsl"), &text("add")).unwrap();
    both.add_text("add/row", Path::new("row.wgsl"), &text("add/row")).unwrap();
    let twice = both.add_text("add/portable", Path::new("x.wgsl"), &text("add")).unwrap_err();
    assert!(twice.to_string().contains("two kernels are given for `add/portable`"), "{twice}");
    let kernel = |overrides: &Overrides, name: &str| {
        let sample = BuiltIn::find(name, DType::F32, &info).unwrap().sample;
        plan_node(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), &info, overrides)
            .unwrap()
            .kernel
    };
    assert_eq!(
        (kernel(&both, "add"), kernel(&both, "add/row")),
        ("add/like.wgsl".into(), "add/row.wgsl".into())
    );
    let one = overrides("add/row", &text("add/row"));
    assert_eq!(
        (kernel(&one, "add"), kernel(&one, "add/row")),
        ("add/portable".into(), "add/mine.wgsl".into())
    );
}

#[test]
fn unknown_names_and_small_devices_are_told() {
    let error = |name: &str| BuiltIn::find(name, DType::F32, &any_device()).unwrap_err();
    for (name, message) in
        [("ad", "unknown operator `ad`"), ("", "unknown operator"), ("add/col", "no kernel `add/col`")]
    {
        let error = error(name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        assert!(error.to_string().contains(message) && error.hint().unwrap().contains("add"), "{error}");
    }
    let mut small = any_device();
    small.limits = Limits { max_invocations: 16, ..small.limits };
    let error = BuiltIn::find("add", DType::F32, &small).unwrap_err();
    assert_eq!((error.kind(), error.detail("limit")), (ErrorKind::Unsupported, Some("max_invocations")));
}

#[test]
fn sections_of_packed_weights_are_told_apart() {
    let one = BuiltIn::find("linear/packed", DType::F32, &any_device()).unwrap();
    let bound: Vec<String> = one.bindings().unwrap().into_iter().map(|binding| binding.of).collect();
    assert_eq!(bound[1..3], ["words of input 1, int4g32[40,64]", "scales of input 1, int4g32[40,64]"]);
}

/// The decimal numbers with an exponent that stand in a text.
fn exponents(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
    text.match_indices("e38").map(move |(at, _)| {
        let start = text[..at].rfind(|c| !is_part(c)).map_or(0, |before| before + 1);
        &text[start..at + 3]
    })
}

/// The compiler of Chromium, Tint, refuses numbers that lie above the largest of f32, though they would be rounded to it.
#[test]
fn numbers_are_within_the_range_of_f32() {
    assert_eq!(exponents("x <= 3.4028235e38 && y").collect::<Vec<_>>(), ["3.4028235e38"]);
    for one in all_kernels() {
        let text = one.text().unwrap();
        for number in exponents(&text) {
            let value: f64 = number.parse().unwrap();
            let largest = f64::from(f32::MAX);
            assert!(
                value <= largest,
                "{}: {number} is above {largest:e}: write 0x1.fffffep+127f",
                one.kernel
            );
        }
    }
}
