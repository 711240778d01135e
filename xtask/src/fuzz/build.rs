//! Builds fuzz targets: the flags are those of cargo-fuzz, so that `cargo fuzz` finds the same.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Zsanitizer=address --cfg fuzzing";

/// Builds these targets; gives the folder of their binaries.
pub fn build(root: &Path, targets: &[String]) -> Result<PathBuf> {
    let folder = root.join("fuzz");
    let host = host()?;
    lock(root, &folder)?;
    eprintln!("fuzz: building {} with AddressSanitizer", targets.join(", "));
    // One job, at low priority: a long build should leave the machine usable.
    let mut command = nightly("cargo");
    command.args(["build", "--release", "--jobs", "1", "--target", &host]).current_dir(&folder);
    command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", folder.join("target"));
    command.args(targets.iter().flat_map(|name| ["--bin", name]));
    let status = command.status().context("could not start rustup")?;
    ensure!(status.success(), "the fuzz targets were not built ({status}): they need a C++ compiler, too");
    Ok(folder.join("target").join(host).join("release"))
}

/// Fuzz targets are built with the versions that the workspace is built with.
fn lock(root: &Path, folder: &Path) -> Result<()> {
    let (from, to) = (root.join("Cargo.lock"), folder.join("Cargo.lock"));
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    if changed(&to).is_ok_and(|copied| changed(&from).is_ok_and(|own| own <= copied)) {
        return Ok(());
    }
    std::fs::copy(&from, &to).map(drop).with_context(|| to.display().to_string())
}

/// The triple of this machine, which the sanitizer must be told.
fn host() -> Result<String> {
    let output = nightly("rustc").arg("-vV").output().context("could not start rustup")?;
    ensure!(output.status.success(), "no nightly toolchain: `rustup toolchain install nightly`");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(String::from).context("rustc names no host")
}

fn nightly(program: &str) -> Command {
    let mut command = Command::new(if cfg!(unix) { "nice" } else { "rustup" });
    if cfg!(unix) {
        command.args(["-n", "10", "rustup"]);
    }
    command.args(["run", "nightly", program]);
    // What cargo tells this program about itself would make build scripts of others run again.
    for (name, _) in std::env::vars()
        .filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        command.env_remove(name);
    }
    command
}
