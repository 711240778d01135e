//! Debian's packages that tests need. Where they may not or cannot be installed, their tests are skipped, and the skips
//! counted.

use std::path::Path;
use std::process::Command;

/// A Debian package, and what shows it is installed: a file, or a command that succeeds, since some come in other ways too.
const PACKAGES: &[(&str, &str)] = &[
    ("libvulkan1", "/usr/lib/x86_64-linux-gnu/libvulkan.so.1"),
    ("mesa-vulkan-drivers", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"),
    ("ocl-icd-libopencl1", "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1"),
    ("pocl-opencl-icd", "/etc/OpenCL/vendors/pocl.icd"),
    ("oclgrind", "/usr/lib/oclgrind/liboclgrind-rt-icd.so"),
    ("clang-19", "/usr/bin/clang++-19"),
    ("lld-19", "/usr/bin/ld.lld-19"),
    ("chromium", "/usr/bin/chromium"),
    // SwiftShader, the Vulkan driver of tests of WebGPU.
    ("chromium-common", "/usr/lib/chromium/vk_swiftshader_icd.json"),
    ("zstd", "zstd --version"),
    ("nodejs", "node --version"),
    ("npm", "npm --version"),
    ("python3-venv", "python3 -m ensurepip --version"),
    ("nats-server", "/usr/sbin/nats-server"),
    ("iproute2", "/usr/sbin/ip"),
];

/// Installs missing packages when running as root on Debian; says what is missing otherwise.
pub fn install() {
    let missing = || PACKAGES.iter().filter(|(_, sign)| !present(sign)).map(|(name, _)| *name);
    let names: Vec<&str> = missing().collect();
    if names.is_empty() {
        return;
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        println!(
            "not installed: {}; their tests will be skipped (to install: apt-get install {})",
            names.join(", "),
            names.join(" ")
        );
        return;
    }
    println!("installing {}", names.join(", "));
    // Lists that cannot be updated may still do.
    apt(&["update", "-qq"]);
    let install = ["install", "-y", "-qq", "--no-install-recommends"];
    if !apt(&[&install[..], &names].concat()) {
        // What Debian's release lacks must not keep the others away.
        for name in &names {
            apt(&[&install[..], &[name]].concat());
        }
    }
    let left: Vec<&str> = missing().collect();
    if !left.is_empty() {
        println!("could not install {}; their tests will be skipped", left.join(", "));
    }
}

/// Whether apt-get succeeds at this.
fn apt(arguments: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    // Another installation of the machine may be at work.
    command.args(["-o", "DPkg::Lock::Timeout=300"]);
    command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
    command.status().is_ok_and(|status| status.success())
}

/// Whether this file is there, or this command succeeds.
fn present(sign: &str) -> bool {
    match sign.split_once(' ') {
        None => Path::new(sign).exists(),
        Some((program, arguments)) => {
            let output = Command::new(program).args(arguments.split(' ')).output();
            output.is_ok_and(|output| output.status.success())
        }
    }
}
