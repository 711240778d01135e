//! `cargo xtask test`: installs what tests need from Debian's packages if it may, runs all tests, counts the skips.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A Debian package, the file that shows it is installed, and what tests call it when they skip.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("libvulkan1", "/usr/lib/x86_64-linux-gnu/libvulkan.so.1", "vulkan"),
    ("mesa-vulkan-drivers", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "vulkan"),
    ("ocl-icd-libopencl1", "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1", "opencl"),
    ("pocl-opencl-icd", "/etc/OpenCL/vendors/pocl.icd", "opencl"),
    ("chromium", "/usr/bin/chromium", "chromium"),
    ("nodejs", "/usr/bin/node", "node"),
    ("nats-server", "/usr/sbin/nats-server", "nats-server"),
    ("iproute2", "/usr/sbin/ip", "netns"),
];

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    install();
    node_packages(root);
    let log = root.join("target").join("skips.log");
    std::fs::create_dir_all(root.join("target")).context("could not create target/")?;
    let _ = std::fs::remove_file(&log);
    let mut child = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(arguments)
        .current_dir(root)
        .env("TAPML_SKIP_LOG", &log)
        .stdout(Stdio::piped())
        .spawn()
        .context("could not start cargo test")?;
    let (mut passed, mut failed) = forward(child.stdout.take().context("cargo test has no output")?)?;
    let mut good = child.wait()?.success();
    if arguments.is_empty() {
        let (more_passed, more_failed) = web(root, &log)?;
        (passed, failed) = (passed + more_passed, failed + more_failed);
        good &= more_failed == 0;
    }
    let skips = std::fs::read_to_string(&log).unwrap_or_default();
    print!("{skips}");
    println!("{passed} passed, {failed} failed, {} skipped", skips.lines().count());
    if !good {
        bail!("tests failed");
    }
    Ok(())
}

/// Prints what cargo prints and adds up its `test result` lines: passed, failed.
fn forward(output: impl Read) -> Result<(u64, u64)> {
    let (mut passed, mut failed) = (0, 0);
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["test", "result:", _, p, "passed;", f, "failed;", ..] = words.as_slice() {
            passed += p.parse::<u64>().unwrap_or(0);
            failed += f.parse::<u64>().unwrap_or(0);
        }
    }
    Ok((passed, failed))
}

/// Installs missing packages when running as root on Debian; says what is missing otherwise.
fn install() {
    let missing: Vec<_> = PACKAGES.iter().filter(|(name, file, _)| !present(name, file)).collect();
    if missing.is_empty() {
        return;
    }
    let names: Vec<&str> = missing.iter().map(|(name, ..)| *name).collect();
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
    let apt = |arguments: &[&str]| {
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments)
            .status()
            .is_ok_and(|s| s.success())
    };
    let updated = apt(&["update", "-qq"]);
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(&names);
    if !(updated && apt(&install)) {
        println!("could not install {}; their tests will be skipped", names.join(", "));
    }
}

fn present(name: &str, file: &str) -> bool {
    match name {
        "nodejs" => Command::new("node").arg("--version").output().is_ok_and(|o| o.status.success()),
        _ => Path::new(file).exists(),
    }
}

/// Fetches the pinned packages that check kernels with Chrome's WGSL front end, and those that build the browser's agent.
fn node_packages(root: &Path) {
    for name in ["tests/tint", "web"] {
        let folder = root.join(name);
        if !folder.join("package-lock.json").exists() || folder.join("node_modules").exists() {
            continue;
        }
        let ci = ["ci", "--silent", "--no-audit", "--no-fund"];
        let done = Command::new("npm").args(ci).current_dir(&folder).status();
        if !done.is_ok_and(|s| s.success()) {
            println!("could not fetch the npm packages of {name}; its tests will be skipped");
        }
    }
}

/// Types and tests of the browser's agent: passed, failed. A failure of the types counts as one.
fn web(root: &Path, log: &Path) -> Result<(u64, u64)> {
    let folder = root.join("web");
    if !folder.join("node_modules").exists() {
        let mut skips = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        writeln!(skips, "skipped: web: node: the npm packages of web are not installed")?;
        return Ok((0, 0));
    }
    let output = Command::new("npm").args(["test", "--silent"]).current_dir(&folder).output();
    let output = output.context("could not start npm test")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let sum = |word: &str| {
        let count = |line: &str| line.strip_prefix(word)?.trim().parse::<u64>().ok();
        text.lines().filter_map(count).sum::<u64>()
    };
    let mut skips = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
    for line in text.lines().filter(|l| l.starts_with("ok ") && l.contains("# SKIP")) {
        writeln!(skips, "skipped: web: {line}")?;
    }
    let failed = sum("# fail ").max(u64::from(!output.status.success()));
    Ok((sum("# pass "), failed))
}
