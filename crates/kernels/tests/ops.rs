//! Every kernel against the oracle, at every sample, on every device of this machine, with all checks of the emulator.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{devices, emulator, run_call, run_plan};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use tapml_device::{AdapterKind, Device, DeviceInfo};
use tapml_graph::Packing;
use tapml_graph::fusion::FUSIONS;
use tapml_graph::op::{Fill, Linear, OPS, OpInfo, Sample};
use tapml_graph::{DType, Op, Symbols, Tensor};
use tapml_kernels::{
    KERNELS, KernelCache, NodePlan, Overrides, Phase, SETTINGS, plan_node, plan_settings, plan_variants,
};
use tapml_reference::{Oracle, Value, oracle};

/// Multiples of the oracle's deviation under disturbances of one rounding of f32 that a kernel may be off by.
const FACTOR: f64 = 16.0;
const COPIES: usize = 8;
/// Multiples of the deviation under roundings within a fused operator.
const INNER: f64 = 4.0;

/// The operators, or for work on some of them those that `TAPML_OPS` lists, such as `TAPML_OPS=rope,attention`.
fn ops() -> impl Iterator<Item = &'static OpInfo> {
    let wanted = std::env::var("TAPML_OPS").ok();
    let is_wanted = move |info: &&OpInfo| {
        wanted.as_ref().is_none_or(|names| names.split(',').any(|name| name == info.name))
    };
    OPS.iter().filter(is_wanted)
}

/// A sample with its inputs, and what is exact for them: computed for the first kernel that asks and told to all others.
struct Case {
    sample: Sample,
    inputs: Vec<Tensor>,
    oracle: OnceCell<Oracle>,
}

impl Case {
    fn new(sample: Sample) -> Case {
        let inputs = sample.tensors(11).unwrap();
        Case { sample, inputs, oracle: OnceCell::new() }
    }

    fn oracle(&self) -> &Oracle {
        self.oracle.get_or_init(|| {
            let Case { sample, inputs, .. } = self;
            let values: Vec<Value<f64>> = inputs.iter().map(|t| Value::from_tensor(t).unwrap()).collect();
            let unit = DType::F32.unit_roundoff();
            let is_weight = vec![false; values.len()];
            oracle(&sample.op, &sample.symbols, &values, &is_weight, unit, COPIES, 7).unwrap()
        })
    }
}

/// The root of the mean square of each row.
fn spreads(values: &[f64], width: usize) -> Vec<f64> {
    let squares = |row: &[f64]| row.iter().map(|v| v * v).sum::<f64>();
    values.chunks(width).map(|row| (squares(row) / width as f64).sqrt()).collect()
}

/// The largest ratio of error to allowed error, and where.
fn worst(case: &Case, outputs: &[Tensor]) -> (f64, String) {
    let oracle = case.oracle();
    let mut worst = (0.0, String::new());
    for (k, output) in outputs.iter().enumerate() {
        let (exact, deviation) = (&oracle.exact[k], &oracle.deviation[k]);
        assert_eq!(output.shape(), exact.shape(), "{}", case.sample.name);
        let width = exact.row_len().max(1);
        let storage = if output.dtype() == DType::F32 { 2.0 } else { 1.01 } * output.dtype().unit_roundoff();
        let tiny = output.dtype().min_normal() * storage;
        let found = output.to_f64();
        let spread = spreads(deviation.values(), width);
        // What rounding the values within a fused operator moves.
        let within = oracle.inner.get(k).map(|inner| (inner.values(), spreads(inner.values(), width)));
        for (i, (&y, (&e, &d))) in found.iter().zip(exact.values().iter().zip(deviation.values())).enumerate()
        {
            let inner =
                within.as_ref().map_or(0.0, |(values, spread)| INNER * values[i].max(spread[i / width]));
            let allowed = FACTOR * d.max(spread[i / width]) + storage * e.abs() + tiny + inner;
            let ratio = match output.dtype() {
                _ if y == e => 0.0,
                // An index is right or wrong; only where a rounding decides may it be another.
                DType::U32 => 1.0 / (FACTOR * d + inner),
                _ => (y - e).abs() / allowed,
            };
            if ratio > worst.0 || ratio.is_nan() {
                worst = (ratio, format!("output {k} element {i}: {y}, exact {e}, allowed ±{allowed:.3e}"));
            }
        }
    }
    worst
}

/// Whether the first input, which is no weight, or an output is f16.
fn has_half_activations(sample: &Sample) -> bool {
    let half = |t: &tapml_graph::TensorType| t.dtype == DType::F16;
    let outputs = sample.op.infer(&sample.types()).unwrap();
    sample.types().first().is_some_and(half) || outputs.iter().any(half)
}

fn check(device: &mut dyn Device, cache: &mut KernelCache, case: &Case) {
    let sample = &case.sample;
    let label =
        format!("{} on {}: {} {:?}", sample.op.name(), device.info().name, sample.name, sample.symbols);
    if has_half_activations(sample) && !device.info().features.f16 {
        return tapml_testing::skip("f16", &label);
    }
    let plans = plan_variants(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), device.info());
    for plan in plans.unwrap_or_else(|e| panic!("{label}: {e}\n{:?}", e.details())) {
        let label = format!("{label} by {}", plan.kernel);
        check_plan(device, cache, case, &plan, &label);
    }
}

fn check_plan(device: &mut dyn Device, cache: &mut KernelCache, case: &Case, plan: &NodePlan, label: &str) {
    let Case { sample, inputs, .. } = case;
    let run = run_plan(device, cache, plan, &sample.op, &sample.types(), &sample.symbols, inputs);
    let outputs = run.unwrap_or_else(|e| panic!("{label}: {e}\n{:?}", e.details()));
    let findings = device.take_findings();
    assert!(
        findings.is_empty(),
        "{label}:\n{}",
        findings.iter().map(|f| format!("  {f}\n")).collect::<String>()
    );
    let (ratio, place) = worst(case, &outputs);
    if std::env::var_os("TAPML_SHOW_RATIOS").is_some() {
        eprintln!("{ratio:8.4} {label}");
    }
    assert!(ratio <= 1.0, "{label}: {ratio:.2} times the allowed error at {place}");
}

#[test]
fn samples_agree_with_the_oracle_and_nothing_is_found() {
    let cases: Vec<Case> = ops().flat_map(|info| (info.samples)()).map(Case::new).collect();
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for case in &cases {
            check(device.as_mut(), &mut cache, case);
        }
    }
}

/// Operators with kernels for matrix units.
const ON_MATRICES: [&str; 3] = ["linear", "gated_linear", "attention"];

/// Products of steps that are loaded ahead, and with as many columns as are worth large tiles, beside the operators' own
/// samples.
fn long_products() -> Vec<Sample> {
    let sample = |name: &str, op: Op, n, k: u32| {
        Sample::new(name, op, n, 0).input(DType::F16, &format!("n,{k}"), Fill::Normal(1.0))
    };
    let wide = Linear { dtype: Some(DType::F32) };
    let plain = |name, n, [o, k]: [u32; 2]| {
        sample(name, wide.clone().into(), n, k).input(DType::F16, &format!("{o},{k}"), Fill::Normal(0.1))
    };
    let packed = |name, bits, n| {
        let packing = DType::Packed(Packing::integers(bits, 32, false));
        sample(name, wide.clone().into(), n, 256).input(packing, "3100,256", Fill::Codes)
    };
    vec![
        plain("steps ahead", 20, [72, 384]),
        plain("long rows", 16, [16, 4096]),
        plain("wide", 130, [3100, 256]),
        plain("wide, short steps", 9, [3100, 96]),
        packed("wide, 4 bits", 4, 130).input(DType::F16, "3100", Fill::Normal(1.0)),
        packed("wide, 8 bits", 8, 9),
    ]
}

#[test]
fn matrix_units_agree_with_the_oracle() {
    let (mut device, mut cache) = (emulator("check=all&matrices=on"), KernelCache::new());
    let own = OPS.iter().filter(|info| ON_MATRICES.contains(&info.name)).flat_map(|info| (info.samples)());
    let mut taken = 0;
    for sample in own.chain(long_products()) {
        let case = Case::new(sample);
        let sample = &case.sample;
        for plan in
            plan_variants(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), device.info()).unwrap()
        {
            if plan.launches.iter().any(|launch| launch.desc.needs_matrices()) {
                let label = format!("{} {} by {}", sample.op.name(), sample.name, plan.kernel);
                check_plan(&mut device, &mut cache, &case, &plan, &label);
                taken += 1;
            }
        }
    }
    assert!(taken > 10, "{taken}");
}

/// Fused operators by every WGSL row of the kernel list that serves them.
#[test]
fn fused_operators_agree_with_the_oracle() {
    let small = emulator("check=all&kind=gpu").with_subgroup_size(16).unwrap();
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(emulator("check=all&kind=gpu")), Box::new(small)];
    match tapml_wgpu::WgpuDevice::open("vulkan", 0, "") {
        Ok(device) => devices.push(Box::new(device)),
        Err(e) => tapml_testing::skip("vulkan", &e.to_string()),
    }
    let wanted = std::env::var("TAPML_OPS").ok();
    let wanted = |name: &str| wanted.as_ref().is_none_or(|names| names.split(',').any(|n| n == name));
    let samples = FUSIONS.iter().filter(|f| wanted(f.name)).flat_map(|fusion| (fusion.samples)());
    let cases: Vec<Case> = samples.map(Case::new).collect();
    for device in &mut devices {
        let info = DeviceInfo { kind: AdapterKind::Discrete, ..device.info().clone() };
        let (mut cache, mut rows) = (KernelCache::new(), BTreeSet::new());
        for case in &cases {
            let sample = &case.sample;
            let phase = Phase::of_run(&sample.symbols);
            let Ok(plans) = plan_variants(&sample.op, &sample.types(), phase, &info) else { continue };
            for plan in plans {
                let label = format!("{} {} on {}: {}", sample.op.name(), sample.name, info.name, plan.kernel);
                check_plan(device.as_mut(), &mut cache, case, &plan, &label);
                rows.insert(plan.kernel);
            }
        }
        let lanes = info.features.subgroups.map_or(0, |(_, most)| most);
        assert!(rows.len() >= 4 || lanes < 16 || std::env::var_os("TAPML_OPS").is_some(), "{rows:?}");
    }
}

#[test]
fn any_n_and_p() {
    let mut cases = Vec::new();
    for info in ops() {
        let samples = (info.samples)();
        let sample = samples.iter().find(|s| !has_half_activations(s)).unwrap();
        let cached = matches!(info.name, "append" | "attention" | "position_scale" | "rope_angles");
        for n in [1, 2, 3, 5, 16, 17, 33] {
            for &p in if cached { &[0, 1, 7, 64][..] } else { &[0] } {
                cases.push(Case::new(Sample { symbols: Symbols::np(n, p), ..sample.clone() }));
            }
        }
    }
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for case in &cases {
            check(device.as_mut(), &mut cache, case);
        }
    }
}

/// At their samples, and at few and many rows of the first of them.
#[test]
fn every_setting_agrees_with_the_oracle() {
    let mut device = emulator("check=all");
    let mut cache = KernelCache::new();
    // The emulator runs WGSL alone.
    let is_cuda = |kernel: &str| {
        let row = KERNELS.iter().find(|row| row.name == kernel || row.also == Some(kernel));
        row.is_some_and(|row| row.needs.cuda.is_some() || row.needs.cuda_exactly.is_some())
    };
    let mut waiting = BTreeSet::new();
    for row in SETTINGS {
        for &kernel in row.kernels {
            let name = row.setting.name(kernel);
            if is_cuda(kernel) {
                tapml_testing::skip("CUDA", &format!("{name} on the emulator"));
            } else {
                waiting.insert(name);
            }
        }
    }
    for info in ops() {
        let samples = (info.samples)();
        let rows = [3, 33, 70].map(|n| Sample { symbols: Symbols::np(n, 40), ..samples[0].clone() });
        for sample in samples.iter().chain(&rows) {
            let case = Case::new(sample.clone());
            let plans =
                plan_settings(&sample.op, &sample.types(), Phase::of_run(&sample.symbols), device.info())
                    .unwrap();
            for plan in plans.iter().filter(|plan| plan.kernel.contains('@')) {
                waiting.remove(&plan.kernel);
                let label = format!("{} {:?} by {}", sample.name, sample.symbols, plan.kernel);
                check_plan(&mut device, &mut cache, &case, plan, &label);
            }
        }
    }
    assert!(waiting.is_empty() || std::env::var_os("TAPML_OPS").is_some(), "not run: {waiting:?}");
}

/// Operators whose weights may be bound in parts.
const SPLIT: [&str; 5] = ["linear", "gated_linear", "embedding", "expert_linear", "expert_gated_linear"];

#[test]
fn weights_in_parts_give_the_same_bits() {
    for mut device in devices() {
        let mut cache = KernelCache::new();
        let mut small = device.info().clone();
        small.limits.max_binding_size = 8 << 10;
        for op in SPLIT {
            let mut split = 0;
            for sample in (OPS.iter().find(|info| info.name == op).unwrap().samples)() {
                let inputs = sample.tensors(5).unwrap();
                let (types, none) = (sample.types(), Overrides::default());
                let Ok(whole) =
                    plan_node(&sample.op, &types, Phase::of_run(&sample.symbols), device.info(), &none)
                else {
                    continue;
                };
                // Rows of an odd length cannot be cut at multiples of 256 bytes this early.
                let Ok(parts) = plan_node(&sample.op, &types, Phase::of_run(&sample.symbols), &small, &none)
                else {
                    continue;
                };
                split += usize::from(parts.launches.len() > 1);
                let mut run = |plan: &NodePlan| {
                    let (device, symbols) = (device.as_mut(), &sample.symbols);
                    run_plan(device, &mut cache, plan, &sample.op, &types, symbols, &inputs).unwrap()
                };
                let (a, b) = (run(&whole), run(&parts));
                assert_eq!(
                    a[0].bytes()[..],
                    b[0].bytes()[..],
                    "{op} {}: {} parts",
                    sample.name,
                    parts.launches.len()
                );
            }
            assert!(split > 0, "{op}");
        }
        assert!(device.take_findings().is_empty());
    }
}

/// Places (slots of rows) with an expert that does not exist get zeros, whichever way the kernel takes, and the others
/// what they would get anyway.
#[test]
fn experts_that_do_not_exist_give_zeros() {
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for op in ["expert_linear", "expert_gated_linear"] {
            let samples = (OPS.iter().find(|info| info.name == op).unwrap().samples)();
            let sample = samples.iter().find(|s| s.name == "odd sizes").unwrap();
            for n in [3u64, 40] {
                let sample = Sample { symbols: Symbols::np(n, 0), ..sample.clone() };
                let mut inputs = sample.tensors(3).unwrap();
                let at = inputs.len() - 1;
                let mut run = |inputs: &[Tensor]| {
                    let (device, types) = (device.as_mut(), sample.types());
                    run_call(device, &mut cache, &sample.op, &types, &sample.symbols, inputs).unwrap().1[0]
                        .to_f64()
                };
                let right = run(&inputs);
                let (shape, mut experts) = (inputs[at].shape().to_vec(), inputs[at].to_u32().unwrap());
                let width = right.len() / experts.len();
                experts.iter_mut().step_by(5).for_each(|e| *e = 3 + (*e << 30));
                inputs[at] = Tensor::from_u32(shape, experts).unwrap();
                for (place, (a, b)) in right.chunks(width).zip(run(&inputs).chunks(width)).enumerate() {
                    match place % 5 {
                        0 => assert!(b.iter().all(|&y| y == 0.0), "{op} at {n} rows, place {place}"),
                        _ => assert_eq!(a, b, "{op} at {n} rows, place {place}"),
                    }
                }
            }
        }
        assert!(device.take_findings().is_empty());
    }
}

/// Errors of cosines and sines themselves, in units in the last place of numbers just below 1, at near and far positions.
#[test]
fn rope_angles_are_exact_to_a_unit_in_the_last_place() {
    let frequencies: Vec<f32> =
        (0..32).map(|j| 500_000f32.powf(-(j as f32) / 32.0)).chain([-0.7, 0.3, 1e-9]).collect();
    let op = tapml_graph::op::RopeAngles::new(frequencies.clone(), 1.0).into();
    for mut device in devices() {
        let mut cache = KernelCache::new();
        for p in [0u64, 1000, 131_000, 16_777_000] {
            let symbols = Symbols::np(100, p);
            let (_, found) = run_call(device.as_mut(), &mut cache, &op, &[], &symbols, &[]).unwrap();
            for (i, row) in found[0].to_f64().chunks(2 * frequencies.len()).enumerate() {
                for (j, &f) in frequencies.iter().enumerate() {
                    let angle = (p as f64 + i as f64) * f64::from(f);
                    for (y, exact) in [(row[j], angle.cos()), (row[frequencies.len() + j], angle.sin())] {
                        let unit = (-24f64).exp2();
                        let allowed = unit * (exact.abs() * 2.0 + 0.01) + p as f64 * 1e-16;
                        assert!((y - exact).abs() <= allowed, "{}: {angle}: {y} {exact}", device.info().name);
                    }
                }
            }
        }
    }
}
