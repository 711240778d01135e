//! The device conformance suite on every Vulkan adapter here, on the profile of a phone, and on SwiftShader.
#![allow(clippy::unwrap_used)]

mod common;

use tapml_device::conformance::run_all;
use tapml_graph::ErrorKind;
use tapml_testing::skip;
use tapml_wgpu::{WgpuDevice, adapters};

/// Runs the suite on all adapters with these options.
fn suite(options: &str) {
    let found = match adapters("vulkan") {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip("vulkan", &error.to_string());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for (index, info) in found.iter().enumerate() {
        let mut device = WgpuDevice::open("vulkan", index, options).unwrap();
        let report = run_all(&mut device).unwrap();
        println!("vulkan:{index}?{options} {} ({}):\n{report}", info.name, info.driver);
        assert_eq!(report.counts().failed, 0, "{} fails the suite:\n{report}", info.name);
    }
}

#[test]
fn every_adapter_conforms() {
    suite("");
}

#[test]
fn every_adapter_conforms_with_default_limits() {
    suite("profile=mobile");
}

#[test]
fn every_adapter_conforms_without_shader_checks() {
    suite("checks=off");
}

#[test]
fn swiftshader_conforms() {
    if let Some(text) = common::on_swiftshader(&["every_adapter_conforms"]) {
        println!("{text}");
        assert!(text.contains("vulkan:0? SwiftShader"), "the loader took another driver:\n{text}");
    }
}
