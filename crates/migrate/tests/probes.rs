//! Probes of the range do not blame the built-in kernels: every saturating operator, on every device present.
#![allow(clippy::unwrap_used)]

use tapml_device::{Device, DeviceInfo};
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{Call, DevicePlatform, Overrides, Phase, Platform};
use tapml_graph::DType;
use tapml_graph::ErrorKind;
use tapml_graph::op::OPS;
use tapml_kernels::{Choice, TuningCache, plan_settings};
use tapml_migrate::Oracles;
use tapml_migrate::accumulation_order;
use tapml_migrate::range_test::{find_overflow, range_call};
use tapml_migrate::verdict::Precision;
use tapml_wgpu::WgpuDevice;

/// A call of every sample.
fn calls() -> impl Iterator<Item = Call> {
    let samples = OPS.iter().flat_map(|op| (op.samples)());
    samples.map(|sample| {
        let input_types = sample.types();
        Call {
            node: format!("{} / {}", sample.op.name(), sample.name),
            op: sample.op.clone(),
            symbols: sample.symbols.clone(),
            inputs: sample.tensors(1).unwrap(),
            weights: vec![None; input_types.len()],
            output_types: sample.op.infer(&input_types).unwrap(),
            input_types,
        }
    })
}

/// A call of every sample that is probed, with its probe.
fn probes() -> Vec<(Call, Call)> {
    calls().filter_map(|call| Some((range_call(&call).unwrap()?, call))).collect()
}

/// The kernels that serve a call, with each of their settings, each as the choice at these types.
fn each_kernel(call: &Call, info: &DeviceInfo) -> Vec<Overrides> {
    let phase = Phase::of_run(&call.symbols);
    let Ok(plans) = plan_settings(&call.op, &call.input_types, phase, info) else { return Vec::new() };
    let chosen = plans.iter().map(|plan| {
        let mut cache = TuningCache::new(info);
        cache.add(Choice::new(&call.op, &call.input_types, &plan.kernel, Vec::new()));
        let mut overrides = Overrides::default();
        overrides.choose(cache);
        overrides
    });
    chosen.collect()
}

/// No kernel that promises it, with whatever setting, adds up more terms one after the other than it declares; gives how many
/// were looked at.
fn sums(device: Box<dyn Device>) -> usize {
    let info = device.info().clone();
    let mut platform = DevicePlatform::new(device, Overrides::default());
    let mut count = 0;
    let probes = calls().filter_map(|call| accumulation_order::order_call(&call).unwrap());
    let probes =
        probes.flat_map(|call| each_kernel(&call, &info).into_iter().map(move |own| (call.clone(), own)));
    for (probe, overrides) in probes {
        platform.set_overrides(overrides).unwrap();
        let phase = Phase::of_run(&probe.symbols);
        let choice = platform.kernel_for(&probe.op, &probe.input_types, phase).unwrap();
        // Tensor cores promise nothing.
        if !choice.accumulate.keeps_chain {
            continue;
        }
        let terms = choice.accumulate.chain.eval(&probe.symbols).unwrap() as usize;
        let declared = Precision { accumulate: DType::F32, terms };
        let mut found = None;
        platform.replay(std::slice::from_ref(&probe), &mut |_, outputs| found = Some(outputs)).unwrap();
        let told = accumulation_order::longer(&probe, &found.unwrap().unwrap(), declared, (&probe.node, ""));
        let text = told.as_ref().map(|b| b.text()).unwrap_or_default();
        assert_eq!(told, None, "{}: {text}", choice.name);
        count += 1;
    }
    count
}

#[test]
fn right_kernels_form_sums_as_they_declare() {
    for options in ["", "kind=gpu", "profile=fast-math"] {
        let emulator = Emulator::new(EmulatorOptions::parse(options).unwrap()).unwrap();
        assert!(sums(Box::new(emulator)) >= 20, "{options}");
    }
    match WgpuDevice::open("vulkan", 0, "") {
        Ok(device) => assert!(sums(Box::new(device)) >= 20),
        Err(error) => tapml_testing::skip("vulkan", &error.to_string()),
    }
}

fn blames(device: Box<dyn Device>) {
    let mut platform = DevicePlatform::new(device, Overrides::default());
    let (oracles, mut ops) = (Oracles::new(0), std::collections::BTreeSet::new());
    for (probe, recorded) in probes() {
        let mut found = None;
        platform.replay(std::slice::from_ref(&probe), &mut |_, outputs| found = Some(outputs)).unwrap();
        let outputs = match found.unwrap() {
            Err(e) if e.kind() == ErrorKind::Unsupported => continue,
            outputs => outputs.unwrap(),
        };
        let exact = oracles.exact(&probe, 0).unwrap();
        let told = find_overflow((&probe, &recorded), &exact, &outputs, (&probe.node, ""));
        assert_eq!(told, None, "{}", told.as_ref().map(|b| b.text()).unwrap_or_default());
        ops.insert(probe.op.name());
    }
    for op in ["softcap", "tanh", "gelu", "silu", "sigmoid", "softplus", "gated_linear", "attention"] {
        assert!(ops.contains(op), "`{op}` was not probed: {ops:?}");
    }
}

#[test]
fn right_kernels_bear_every_probe_on_the_emulator() {
    blames(Box::new(Emulator::new(EmulatorOptions::default()).unwrap()));
}

#[test]
fn right_kernels_bear_every_probe_on_a_device() {
    match WgpuDevice::open("vulkan", 0, "") {
        Ok(device) => blames(Box::new(device)),
        Err(error) => tapml_testing::skip("vulkan", &error.to_string()),
    }
}
