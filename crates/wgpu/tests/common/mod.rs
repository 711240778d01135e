//! What the tests of this crate share: the first Vulkan adapter, and running tests again on SwiftShader.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use tapml_device::ErrorKind;
use tapml_testing::skip;
use tapml_wgpu::WgpuDevice;

/// Where Debian's and Ubuntu's Chromium packages put the description of SwiftShader.
const SWIFTSHADER: [&str; 2] =
    ["/usr/lib/chromium/vk_swiftshader_icd.json", "/usr/lib/chromium-browser/vk_swiftshader_icd.json"];

/// A device of the first Vulkan adapter; `None`, counted as a skip, if there is none here.
pub fn vulkan(options: &str) -> Option<WgpuDevice> {
    match WgpuDevice::open("vulkan", 0, options) {
        Ok(device) => Some(device),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip("vulkan", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs tests of this binary once more with SwiftShader as the only driver: the floor that browsers offer without a GPU.
/// The Vulkan loader reads its variables once for a process, so this takes another one. Returns what they printed;
/// `None`, counted as a skip, if SwiftShader is not here.
pub fn on_swiftshader(tests: &[&str]) -> Option<String> {
    let Some(driver) = SWIFTSHADER.into_iter().find(|p| Path::new(p).exists()) else {
        skip("chromium", "its SwiftShader driver is not installed");
        return None;
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(tests)
        .args(["--exact", "--nocapture"])
        .env("VK_DRIVER_FILES", driver)
        .env("VK_ICD_FILENAMES", driver)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "on SwiftShader:\n{text}");
    assert!(text.contains(&format!("test result: ok. {} passed", tests.len())), "{text}");
    Some(text)
}
