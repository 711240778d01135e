//! `cargo xtask platforms`: type-checks the C library, which holds the agent, and all that it needs for systems other than this one.
//! Nothing is linked and nothing runs.
//!
//! A target whose standard library the toolchain does not have is skipped, and the skip counted: `rustup target add` brings it.

use crate::process::{self, Cause, Stop};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// A system that is checked.
struct PlatformRow {
    target: &'static str,
    /// What it stands for.
    system: &'static str,
}

/// All of them; a further system is one row.
const PLATFORMS: &[PlatformRow] = &[
    PlatformRow { target: "aarch64-linux-android", system: "Android, Vulkan" },
    PlatformRow { target: "aarch64-apple-ios", system: "iOS, Metal" },
    PlatformRow { target: "aarch64-apple-darwin", system: "macOS, Metal" },
    PlatformRow { target: "x86_64-pc-windows-msvc", system: "Windows, DX12 and Vulkan" },
];

/// What is checked with all its dependencies.
const PACKAGE: &str = "tapml-c";
/// Says that this program is run in place of a C compiler.
pub const STAND_IN: &str = "TAPML_XTASK_STAND_IN";
/// Most time for a target.
const LIMIT: Duration = Duration::from_secs(3600);

/// Type-check the C library for other systems
#[derive(Parser)]
#[command(name = "cargo xtask platforms")]
struct Arguments {
    /// Only this target; may repeat
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// Write a report as JSON (`-`: to standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What came of all targets.
#[derive(Serialize)]
struct PlatformsReport {
    schema: u32,
    package: &'static str,
    checked: usize,
    failed: usize,
    skipped: usize,
    platforms: Vec<PlatformResult>,
}

/// What came of one target.
#[derive(Serialize)]
struct PlatformResult {
    target: &'static str,
    system: &'static str,
    state: PlatformState,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    seconds: f64,
    /// Seconds on a processor, where the system tells.
    busy_seconds: Option<f64>,
}

/// How a target ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum PlatformState {
    Checked,
    Failed,
    Skipped,
}

/// Checks the chosen targets, all if none is.
///
/// # Errors
/// If a target does not compile, or an argument is wrong.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let words = std::iter::once("cargo xtask platforms").chain(arguments.iter().map(String::as_str));
    let arguments = match Arguments::try_parse_from(words) {
        Err(e) if !e.use_stderr() => return e.print().context("standard output"),
        other => other?,
    };
    let known: Vec<&str> = PLATFORMS.iter().map(|row| row.target).collect();
    if arguments.list {
        PLATFORMS.iter().for_each(|row| println!("{:<24} {}", row.target, row.system));
        return Ok(());
    }
    let unknown = arguments.target.iter().find(|target| !known.contains(&target.as_str()));
    ensure!(
        unknown.is_none(),
        "no target `{}`; there are {}",
        unknown.unwrap_or(&String::new()),
        known.join(", ")
    );
    let is_chosen =
        |row: &&PlatformRow| arguments.target.is_empty() || arguments.target.iter().any(|t| t == row.target);
    let stop = Stop::on_signal()?;
    let mut platforms = Vec::new();
    for row in PLATFORMS.iter().filter(is_chosen) {
        let result = check(root, row, &stop)?;
        print_result(&result);
        platforms.push(result);
    }
    let count = |state| platforms.iter().filter(|platform| platform.state == state).count();
    let [checked, failed, skipped] =
        [PlatformState::Checked, PlatformState::Failed, PlatformState::Skipped].map(count);
    eprintln!(
        "platforms: {checked} type-checked, {failed} failed, {skipped} skipped; nothing was linked or run"
    );
    let report = PlatformsReport { schema: 1, package: PACKAGE, checked, failed, skipped, platforms };
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        if file == Path::new("-") {
            print!("{text}");
        } else {
            std::fs::write(file, text).with_context(|| format!("could not write {}", file.display()))?;
        }
    }
    ensure!(failed == 0, "{failed} targets do not compile");
    Ok(())
}

/// Prints what came of a target.
fn print_result(result: &PlatformResult) {
    let PlatformResult { target, system, reason, seconds, .. } = result;
    match result.state {
        PlatformState::Checked => eprintln!("checked: {target} ({system}), {seconds:.0} s"),
        PlatformState::Failed => eprintln!("failed: {target} ({system}), {seconds:.0} s"),
        PlatformState::Skipped => tapml_testing::skip(target, reason.as_deref().unwrap_or_default()),
    }
}

/// Checks for one target.
fn check(root: &Path, row: &PlatformRow, stop: &Stop) -> Result<PlatformResult> {
    let PlatformRow { target, system } = *row;
    let result = |state, reason, seconds, busy_seconds| PlatformResult {
        target,
        system,
        state,
        reason,
        seconds,
        busy_seconds,
    };
    if !has_standard_library(target)? {
        let reason = format!("the toolchain has no standard library of it (`rustup target add {target}`)");
        return Ok(result(PlatformState::Skipped, Some(reason), 0.0, None));
    }
    let folder = crate::target(root).join("platforms");
    std::fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["check", "--package", PACKAGE, "--target", target]);
    // Nothing is linked, so any folder does for the SDK of Apple's systems, which is asked for on a Mac alone.
    if target.contains("-apple-") && std::env::var_os("SDKROOT").is_none() && !cfg!(target_os = "macos") {
        command.env("SDKROOT", root);
    }
    replace_compiler(&mut command, target)?;
    let log = folder.join(format!("{target}.log"));
    let ended = process::run(&mut command, &log, LIMIT, stop)?;
    let state = match (ended.cause, ended.code) {
        (Cause::Exited, Some(0)) => PlatformState::Checked,
        (Cause::Stopped, _) => anyhow::bail!("stopped on request while {target} was checked"),
        _ => {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!(
                "{}\n(all of it: {})",
                lines[lines.len().saturating_sub(40)..].join("\n"),
                log.display()
            );
            PlatformState::Failed
        }
    };
    Ok(result(state, None, ended.seconds, ended.busy))
}

/// Whether the toolchain at work has the standard library of a target.
fn has_standard_library(target: &str) -> Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc).args(["--print", "sysroot"]).output();
    let output = output.with_context(|| format!("could not start {}", rustc.display()))?;
    let sysroot = String::from_utf8(output.stdout).context("the folder of the toolchain")?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib").is_dir())
}

/// Lets this program stand in for the C compiler and archiver of a target for which none was named: what they would make is linked,
/// which a check does not do.
fn replace_compiler(command: &mut Command, target: &str) -> Result<()> {
    let program = std::env::current_exe().context("could not find this program's own file")?;
    let underlined = target.replace('-', "_");
    for tool in ["CC", "CXX", "AR"] {
        let names = [format!("{tool}_{target}"), format!("{tool}_{underlined}")];
        if names.iter().all(|name| std::env::var_os(name).is_none()) {
            command.env(&names[1], &program).env(STAND_IN, "1");
        }
    }
    Ok(())
}

/// Stands in for a C compiler or archiver: makes empty files of the names that it is asked for.
pub fn stand_in(arguments: &[String]) -> ExitCode {
    // The question which compiler this is.
    if arguments.iter().any(|argument| argument == "-E") {
        println!("\"clang\"");
        return ExitCode::SUCCESS;
    }
    let after = arguments.iter().position(|argument| argument == "-o").and_then(|at| arguments.get(at + 1));
    let named = |argument: &String| {
        let out = ["-Fo", "/Fo", "-OUT:", "/OUT:", "-out:", "/out:"].iter();
        let joined = out.filter_map(|start| argument.strip_prefix(start)).next();
        joined.or_else(|| argument.ends_with(".a").then_some(argument)).map(String::from)
    };
    let made = after.cloned().or_else(|| arguments.iter().find_map(named));
    match made.map(|file| std::fs::write(file, "")) {
        Some(Err(_)) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_for_a_compiler_makes_what_it_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name).display().to_string();
        for (arguments, made) in [
            (vec!["-c".into(), "-o".into(), file("a.o"), "a.c".into()], "a.o"),
            (vec!["-c".into(), format!("-Fo{}", file("b.obj"))], "b.obj"),
            (vec!["cq".into(), file("c.a"), "x.o".into()], "c.a"),
            (vec![format!("-out:{}", file("d.lib")), "x.obj".into()], "d.lib"),
        ] {
            assert!(
                stand_in(&arguments) == ExitCode::SUCCESS && folder.path().join(made).is_file(),
                "{made}"
            );
        }
    }

    #[test]
    fn a_target_without_a_standard_library_is_known() {
        assert!(!has_standard_library("no-such-target").unwrap());
        if cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
            assert!(has_standard_library("x86_64-unknown-linux-gnu").unwrap(), "this compiler's own target");
        }
    }
}
