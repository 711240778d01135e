//! `cargo xtask test`: installs what tests need from Debian's packages if it may, runs all tests, counts the skips.

use crate::packages;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Arguments with which all tests run.
const ALL_TESTS: [&str; 2] = ["--features", "tapml-python/extension"];

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    packages::install();
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
    // Whoever names tests or a crate wants these alone.
    if arguments.iter().all(|argument| ALL_TESTS.contains(&argument.as_str())) {
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
