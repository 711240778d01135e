//! The device conformance suite on the emulator: each profile, without checks and with all of them.
#![allow(clippy::unwrap_used)]

use tapml_device::conformance::run_all;
use tapml_device::{Device, FindingKind};
use tapml_emulator::{Emulator, EmulatorOptions};

fn suite(options: &str) {
    let mut device = Emulator::new(EmulatorOptions::parse(options).unwrap()).unwrap();
    let report = run_all(&mut device).unwrap();
    println!("emulator?{options}:\n{report}");
    assert_eq!(report.counts().failed, 0, "emulator?{options} fails the suite:\n{report}");
    let mut findings = device.take_findings();
    // The suite reads fresh buffers, which the contract says are zeroed, and exceeds limits, on purpose.
    let on_purpose = [FindingKind::UninitializedRead, FindingKind::LimitExceeded];
    findings.retain(|finding| !on_purpose.contains(&finding.kind));
    assert!(findings.is_empty(), "the suite's kernels are clean, found {findings:#?}");
}

#[test]
fn default_profile_conforms() {
    suite("");
}

#[test]
fn default_profile_conforms_while_it_checks() {
    suite("check=all");
}

#[test]
fn mobile_profile_conforms() {
    suite("profile=mobile-webgpu");
}
