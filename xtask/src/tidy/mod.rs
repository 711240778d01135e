//! `cargo xtask tidy`: house rules that a compiler does not check. Each rule is one file and reports every violation.

mod api;
mod arrows;
mod book;
mod circles;
mod crates;
mod examples;
mod functions;
mod kernels;
mod links;
mod lists;
mod markdown;
mod modules;
mod names;
mod prose;
mod reports;
mod shares;
mod sizes;
mod tuples;
mod words;

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use walkdir::WalkDir;

/// A Rust source file of the workspace.
pub struct File {
    /// Path relative to the root.
    pub path: PathBuf,
    pub text: String,
}

impl File {
    /// Whether the file holds tests, fuzz targets, benches or examples only.
    pub fn is_test(&self) -> bool {
        self.path.starts_with("fuzz")
            || self.path.components().any(|c| {
                matches!(c.as_os_str().to_str(), Some("tests" | "benches" | "examples" | "tests.rs"))
            })
    }
}

/// Checks every rule.
pub fn run(root: &Path) -> Result<()> {
    let files = sources(root)?;
    let mut errors = Vec::new();
    headers(&files, &mut errors);
    root_entries(root, &mut errors)?;
    let crates = modules::Crates::parse(&files)?;
    api::check(root, &files, &crates, &mut errors)?;
    circles::check(&crates, &mut errors);
    arrows::check(root, &mut errors)?;
    examples::check(root, &files, &mut errors)?;
    sizes::check(&files, &mut errors)?;
    shares::check(&files, &mut errors);
    sizes::check_tracked(root, &mut errors)?;
    links::check(root, &mut errors)?;
    book::check(root, &mut errors)?;
    prose::check(root, &mut errors)?;
    lists::check(root, &mut errors)?;
    names::check(&files, &mut errors)?;
    tuples::check(&files, &mut errors)?;
    kernels::check(root, &mut errors)?;
    crate::gpu::page::check(root, &mut errors);
    let bless = std::env::var_os("TAPML_BLESS").is_some();
    crate::records::check(root, bless, &mut errors)?;
    crate::architectures::check(root, bless, &mut errors)?;
    reports::check(root, &files, &mut errors)?;
    crate::wire::check(root, &mut errors)?;
    crate::wasm::check(root, &mut errors)?;
    for error in &errors {
        eprintln!("tidy: {error}");
    }
    if !errors.is_empty() {
        bail!("{} violations of the house rules", errors.len());
    }
    println!("tidy: {} files hold the house rules", files.len());
    Ok(())
}

/// The rules for pages alone: links lead somewhere, and the book has every page.
pub fn check_pages(root: &Path) -> Result<()> {
    let mut errors = Vec::new();
    links::check(root, &mut errors)?;
    book::check(root, &mut errors)?;
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

/// The tracked files, relative to the root, with `/` between their parts.
fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let output = output.context("could not start git")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let listed = String::from_utf8(output.stdout).context("names of tracked files")?;
    Ok(listed.split_terminator('\0').map(str::to_string).collect())
}

fn sources(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for top in ["bindings", "crates", "fuzz", "xtask"] {
        let walk = WalkDir::new(root.join(top)).sort_by_file_name().into_iter();
        // What is generated, in folders `gen`, is as its generator writes it.
        let skipped = ["target", "node_modules", "gen"];
        for entry in walk.filter_entry(|e| !skipped.iter().any(|name| e.file_name() == *name)) {
            let entry = entry?;
            if entry.path().extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(entry.path())
                    .with_context(|| entry.path().display().to_string())?;
                files.push(File { path: entry.path().strip_prefix(root)?.to_path_buf(), text });
            }
        }
    }
    Ok(files)
}

fn headers(files: &[File], errors: &mut Vec<String>) {
    for file in files {
        if !file.text.starts_with("//!") {
            errors.push(format!(
                "{}: the first line must be a `//!` line that says what lives here",
                file.path.display()
            ));
        }
    }
}

/// A newcomer should grasp the root at a glance.
fn root_entries(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let hidden = name.starts_with('.')
            || name.starts_with("target")
            || name == "Cargo.lock"
            || name == "node_modules";
        if !hidden {
            names.push(name);
        }
    }
    if names.len() > 17 {
        names.sort();
        errors.push(format!("the root has {} visible entries, at most 17: {}", names.len(), names.join(" ")));
    }
    Ok(())
}
