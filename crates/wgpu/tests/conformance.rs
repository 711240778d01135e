//! The device conformance suite on every Vulkan adapter here, on the profile of a phone, and on SwiftShader.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use tapml_device::conformance::run_all;
use tapml_graph::ErrorKind;
use tapml_testing::skip;
use tapml_wgpu::{WgpuDevice, adapters};

/// Where Debian's and Ubuntu's Chromium packages put the description of SwiftShader.
const SWIFTSHADER: [&str; 2] =
    ["/usr/lib/chromium/vk_swiftshader_icd.json", "/usr/lib/chromium-browser/vk_swiftshader_icd.json"];

/// Runs the suite on all adapters with these options; false if there is no adapter.
fn suite(options: &str) -> bool {
    let found = match adapters("vulkan") {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip("vulkan", &error.to_string());
            return false;
        }
        Err(error) => panic!("{error}"),
    };
    for (index, info) in found.iter().enumerate() {
        let mut device = WgpuDevice::open("vulkan", index, options).unwrap();
        let report = run_all(&mut device).unwrap();
        println!("vulkan:{index}?{options} {} ({}):\n{report}", info.name, info.driver);
        assert_eq!(report.counts().1, 0, "{} fails the suite:\n{report}", info.name);
    }
    true
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
    let Some(driver) = SWIFTSHADER.into_iter().find(|p| Path::new(p).exists()) else {
        skip("chromium", "its SwiftShader driver is not installed");
        return;
    };
    // The loader reads these once for a process, so the suite runs in another one.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["every_adapter_conforms", "--exact", "--nocapture"])
        .env("VK_DRIVER_FILES", driver)
        .env("VK_ICD_FILENAMES", driver)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success());
    assert!(text.contains("SwiftShader"), "the loader did not take {driver}");
}
