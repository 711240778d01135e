//! Every built-in kernel on OpenCL and on the emulator, at a sample of its operator: both do the same arithmetic, so the
//! results differ by what the built-in functions of WGSL may be off by.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../cfamily/tests/common/programs.rs"]
mod programs;

use common::{difference, run};
use std::collections::HashSet;
use tapml_device::Device;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_graph::DType;
use tapml_graph::op::{Foreign, OPS};
use tapml_kernels::{KERNELS, Overrides, Phase, plan_node, plan_variants};
use tapml_opencl::OpenClDevice;

/// Roundings that the results may differ by: built-in functions such as `exp` and `sin` are not exact.
const ROUNDINGS: f64 = 16.0;

#[test]
fn every_kernel_gives_what_it_gives_on_the_emulator() {
    let mut opencl = match OpenClDevice::open(0, "") {
        Ok(device) => device,
        Err(error) => return tapml_testing::skip("opencl", &error.to_string()),
    };
    let mut emulator = Emulator::new(EmulatorOptions::default()).unwrap();
    let (mut seen, mut wrong) = (HashSet::new(), Vec::new());
    let others = KERNELS.iter().filter(|row| Foreign::is_kind(row.op())).flat_map(|row| row.samples());
    for sample in OPS.iter().flat_map(|info| (info.samples)()).chain(others) {
        let label = format!("{}: {}", sample.op.name(), sample.name);
        let types = sample.types();
        let plan = plan_node(
            &sample.op,
            &types,
            Phase::of_run(&sample.symbols),
            opencl.info(),
            &Overrides::default(),
        )
        .unwrap();
        let half = types.iter().any(|t| t.dtype == DType::F16);
        if !seen.insert((plan.kernel.clone(), half)) {
            continue;
        }
        let inputs = sample.tensors(11).unwrap();
        let found = run(&mut opencl, &plan, &sample, &inputs);
        let expected = run(&mut emulator, &plan, &sample, &inputs);
        for (a, b) in found.iter().zip(&expected) {
            let off = difference(a, b) / b.dtype().unit_roundoff();
            if off > ROUNDINGS {
                wrong.push(format!("{label} ({}): off by {off:.1} roundings", plan.kernel));
            }
        }
    }
    assert!(seen.len() >= OPS.len(), "{} kernels", seen.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn variants_give_the_same_with_emulated_subgroups() {
    let mut opencl = match OpenClDevice::open(0, "subgroups=emulated") {
        Ok(device) => device,
        Err(error) => return tapml_testing::skip("opencl", &error.to_string()),
    };
    let mut emulator = Emulator::new(EmulatorOptions::default()).unwrap();
    let (mut seen, mut wrong) = (HashSet::new(), Vec::new());
    for sample in OPS.iter().flat_map(|info| (info.samples)()) {
        let types = sample.types();
        let half = types.iter().any(|t| t.dtype == DType::F16);
        let plans = plan_variants(&sample.op, &types, Phase::of_run(&sample.symbols), opencl.info()).unwrap();
        for plan in plans {
            let ours = plan.launches.iter().any(|l| l.desc.needs_subgroups);
            if !ours || !seen.insert((plan.kernel.clone(), half)) {
                continue;
            }
            let inputs = sample.tensors(11).unwrap();
            let found = run(&mut opencl, &plan, &sample, &inputs);
            let expected = run(&mut emulator, &plan, &sample, &inputs);
            for (a, b) in found.iter().zip(&expected) {
                let off = difference(a, b) / b.dtype().unit_roundoff();
                if off > ROUNDINGS {
                    wrong.push(format!("{}, {}: off by {off:.1} roundings", plan.kernel, sample.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for op in ["linear", "gated_linear"] {
        for variant in ["subgroup", "packed_subgroup"] {
            let name = format!("{op}/{variant}");
            assert!(seen.iter().any(|(seen, ..)| *seen == name), "{name}: {seen:?}");
        }
    }
}

#[test]
fn programs_compile_with_emulated_subgroups() {
    let mut opencl = match OpenClDevice::open(0, "subgroups=emulated") {
        Ok(device) => device,
        Err(error) => return tapml_testing::skip("opencl", &error.to_string()),
    };
    let (info, mut texts, mut emulated) = (opencl.info().clone(), HashSet::new(), 0);
    for desc in programs::of_programs(&info) {
        let joined = desc.name.starts_with("attention/");
        if (desc.needs_subgroups || joined) && texts.insert(desc.source.full()) {
            emulated += usize::from(desc.needs_subgroups);
            let kernel = opencl.create_kernel(&desc).unwrap_or_else(|e| panic!("{e}\n{:?}", e.details()));
            opencl.destroy_kernel(kernel).unwrap();
        }
    }
    assert!(emulated >= 4 && texts.len() > emulated, "{emulated} of {}", texts.len());
}
