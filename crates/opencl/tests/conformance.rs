//! The device conformance suite on every OpenCL device here.
#![allow(clippy::unwrap_used)]

use tapml_device::conformance::run_all;
use tapml_graph::ErrorKind;
use tapml_opencl::{OpenClDevice, adapters};
use tapml_testing::skip;

/// Runs the suite on all devices with these options.
fn suite(options: &str) {
    let found = match adapters() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            assert!(error.hint().is_some());
            skip("opencl", &error.to_string());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for (index, info) in found.iter().enumerate() {
        let mut device = OpenClDevice::open(index, options).unwrap();
        let report = run_all(&mut device).unwrap();
        println!("opencl:{index}?{options} {} ({}):\n{report}", info.name, info.driver);
        assert_eq!(report.counts().failed, 0, "{} fails the suite:\n{report}", info.name);
    }
}

#[test]
fn every_device_conforms() {
    suite("");
}

#[test]
fn every_device_conforms_without_checks() {
    suite("checks=off");
}

#[test]
fn every_device_conforms_with_emulated_subgroups() {
    suite("subgroups=emulated");
}
