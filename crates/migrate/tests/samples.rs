//! Samples by every row of the kernel list: each row that serves one runs it, and a device that computes nothing fails all.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use tapml_device::Device;
use tapml_device::null::NullDevice;
use tapml_emulator::{Emulator, EmulatorOptions};
use tapml_exec::{DevicePlatform, Overrides, Phase};
use tapml_graph::fusion::FUSIONS;
use tapml_graph::op::{OPS, Sample};
use tapml_kernels::plan_variants;
use tapml_migrate::{SampleCheck, check_rows, check_samples};

fn emulator() -> Emulator {
    Emulator::new(EmulatorOptions::parse("kind=gpu").unwrap()).unwrap()
}

fn samples(name: &str) -> Vec<Sample> {
    let fused = FUSIONS.iter().find(|fusion| fusion.name == name).map(|fusion| (fusion.samples)());
    fused.unwrap_or_else(|| (OPS.iter().find(|info| info.name == name).unwrap().samples)())
}

fn check_sample_on(device: Box<dyn Device>, name: &str) -> SampleCheck {
    check_rows(&mut DevicePlatform::new(device, Overrides::default()), name, &samples(name)).unwrap()
}

/// The rows that serve a sample on the emulator, and the runs that they make.
fn planned_rows(name: &str) -> (BTreeSet<String>, u64) {
    let (mut rows, mut runs) = (BTreeSet::new(), 0);
    for sample in samples(name) {
        let phase = Phase::of_run(&sample.symbols);
        let Ok(plans) = plan_variants(&sample.op, &sample.types(), phase, emulator().info()) else {
            continue;
        };
        runs += plans.len() as u64;
        rows.extend(plans.into_iter().map(|plan| plan.kernel));
    }
    (rows, runs)
}

#[test]
fn every_row_runs_the_samples_that_it_serves() {
    for name in ["linear", "attention", "gated_linear", "norm_linear"] {
        let (rows, runs) = planned_rows(name);
        let check = check_sample_on(Box::new(emulator()), name);
        assert_eq!((check.failed, check.failures.len()), (0, 0), "{:?}", check.failures);
        let ran: BTreeSet<String> = check.kernels.iter().map(|kernel| kernel.kernel.clone()).collect();
        assert_eq!(ran, rows, "{name}: {:?}", check.skipped);
        assert_eq!(check.passed, runs, "{name}: {:?}", check.skipped);
        assert_eq!(check.kernels.iter().map(|kernel| kernel.passed).sum::<u64>(), runs);
        let worst = check.kernels.iter().map(|kernel| kernel.worst).fold(0.0, f64::max);
        assert_eq!(worst, check.worst);
        assert!(worst > 0.0 && worst <= 1.0, "{name}: {worst}");
    }
    // One row of several would say nothing of the others.
    let rows = planned_rows("linear").0;
    assert!(rows.len() >= 3, "{rows:?}");
    let mut platform = DevicePlatform::new(Box::new(emulator()), Overrides::default());
    let info = OPS.iter().find(|info| info.name == "linear").unwrap();
    let chosen = check_samples(&mut platform, info).unwrap();
    assert!(chosen.passed < planned_rows("linear").1 && chosen.kernels.is_empty());
}

#[test]
fn a_device_that_computes_nothing_fails_by_every_row() {
    let info = emulator().info().clone();
    let check = check_sample_on(Box::new(NullDevice::new(info.limits, info.features)), "linear");
    assert_eq!(check.passed, 0, "{:?}", check.kernels);
    assert!(check.worst > 1.0);
    let accused: BTreeSet<&str> = check.failures.iter().filter_map(|f| f.kernel.as_deref()).collect();
    let rows: BTreeSet<&str> = check.kernels.iter().map(|kernel| kernel.kernel.as_str()).collect();
    assert_eq!(accused, rows);
    assert!(
        check.kernels.iter().all(|kernel| kernel.failed > 0 && kernel.passed == 0),
        "{:?}",
        check.kernels
    );
}
