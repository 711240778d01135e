//! `cargo xtask fuzz`: builds the targets of `fuzz/` with AddressSanitizer and coverage, as cargo-fuzz does, and runs each for
//! a time. Needs a nightly toolchain and a C++ compiler. What a run finds stays in `fuzz/target`.

mod build;
mod run;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Fuzz what reads the bytes of strangers.
#[derive(Parser)]
#[command(
    name = "cargo xtask fuzz",
    after_help = "Example:\n  cargo xtask fuzz --target template --seconds 600"
)]
struct Arguments {
    /// Only this target; may repeat
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// Write a report as JSON (`-`: to standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What came of one target.
#[derive(Debug, Serialize)]
struct Ran {
    target: String,
    /// Inputs that were run.
    executions: u64,
    /// Branches that were reached, as libFuzzer counts.
    coverage: u64,
    seconds: f64,
    /// The input that failed, and the last words about it.
    finding: Option<Finding>,
}

#[derive(Debug, Serialize)]
struct Finding {
    /// The file with the input; absent if the process left none.
    input: Option<PathBuf>,
    message: String,
}

/// Fails if a target could not be built or started, or found something.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let words = std::iter::once("cargo xtask fuzz").chain(arguments.iter().map(String::as_str));
    let arguments = match Arguments::try_parse_from(words) {
        Err(e) if !e.use_stderr() => return e.print().context("standard output"),
        other => other?,
    };
    let folder = root.join("fuzz");
    let all = targets(&folder)?;
    if arguments.list {
        all.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if let Some(unknown) = arguments.target.iter().find(|name| !all.contains(name)) {
        bail!("no target `{unknown}`; there are {}", all.join(", "));
    }
    let chosen = if arguments.target.is_empty() { all } else { arguments.target };
    let binaries = build::build(root, &chosen)?;
    let file = arguments.json.as_deref().filter(|path| *path != Path::new("-"));
    let mut ran = Vec::new();
    for name in &chosen {
        let one = run::run(&folder, name, &binaries.join(name), arguments.seconds)?;
        if let Some(Finding { input: Some(input), .. }) = &one.finding {
            eprintln!("fuzz: again with `{} {}`", binaries.join(name).display(), input.display());
        }
        ran.push(one);
        // After each target: a run that is stopped has told of those before.
        if let Some(path) = file {
            std::fs::write(path, report(&ran)?).with_context(|| path.display().to_string())?;
        }
    }
    if arguments.json.is_some() && file.is_none() {
        print!("{}", report(&ran)?);
    }
    eprint!("{}", table(&ran));
    let found = ran.iter().filter(|one| one.finding.is_some()).count();
    ensure!(found == 0, "{found} of {} targets found something", ran.len());
    Ok(())
}

/// The targets, in the order of the manifest.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let path = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let bins = manifest.get("bin").and_then(|bins| bins.as_array()).into_iter().flatten();
    let names = bins.filter_map(|bin| bin.get("name").and_then(|name| name.as_str()));
    Ok(names.map(String::from).collect())
}

fn report(ran: &[Ran]) -> Result<String> {
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "schema": 1, "targets": ran }))? + "\n")
}

fn table(ran: &[Ran]) -> String {
    let mut text =
        format!("\n{:<12} {:>12} {:>9} {:>8}  FINDING\n", "TARGET", "EXECUTIONS", "COVERAGE", "SECONDS");
    for one in ran {
        let finding = one.finding.as_ref().map_or("-".into(), |finding| {
            let input = finding.input.as_ref().map_or("no input".into(), |path| path.display().to_string());
            format!("{input}: {}", finding.message)
        });
        let (executions, coverage) = (one.executions, one.coverage);
        text +=
            &format!("{:<12} {executions:>12} {coverage:>9} {:>8.0}  {finding}\n", one.target, one.seconds);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_manifest_has_its_file_and_no_file_is_left_out() {
        let folder = crate::root().join("fuzz");
        let mut named = targets(&folder).unwrap();
        let files = std::fs::read_dir(folder.join("fuzz_targets")).unwrap();
        let mut found: Vec<String> = files
            .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        named.sort();
        found.sort();
        assert_eq!(named, found);
        for seeds in std::fs::read_dir(folder.join("corpus")).unwrap() {
            let name = seeds.unwrap().file_name().to_string_lossy().into_owned();
            assert!(named.contains(&name), "{name} has inputs and is no target");
        }
    }

    #[test]
    fn a_finding_is_told_in_the_table() {
        let finding =
            Finding { input: Some("fuzz/target/findings/gguf/crash-1".into()), message: "panicked".into() };
        let one =
            Ran { target: "gguf".into(), executions: 12, coverage: 3, seconds: 1.4, finding: Some(finding) };
        let text = table(&[one]);
        assert!(text.contains("gguf") && text.contains("findings/gguf/crash-1: panicked"), "{text}");
    }
}
