//! The licences of the crates that the command is built from.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Beginnings of the names of files that hold a licence.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Names, versions and licences of all crates in the command, then each text once with the crates that it is of.
pub fn collect(root: &Path) -> Result<String> {
    let metadata = metadata(root)?;
    let mut list = String::from("The command `tapml` is built from these crates.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in linked_packages(&metadata)? {
        let text = |key: &str| package[key].as_str().unwrap_or("not said");
        let name = format!("{} {}", text("name"), text("version"));
        writeln!(list, "{name}: {}", text("license"))?;
        let folder = Path::new(text("manifest_path")).parent().context("a manifest without a folder")?;
        for licence in read_texts(folder)? {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    for (text, names) in texts {
        write!(list, "\n{}\n{}\n\n{}\n", "-".repeat(80), names.join(", "), text.trim())?;
    }
    Ok(list)
}

fn metadata(root: &Path) -> Result<Value> {
    let host = Command::new("rustc").args(["--print", "host-tuple"]).output().context("rustc")?;
    let host = String::from_utf8(host.stdout)?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--filter-platform", host.trim()]).current_dir(root);
    let output = cargo.output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The packages that others wrote and that the command links, by name.
fn linked_packages(metadata: &Value) -> Result<Vec<&Value>> {
    let array = |value: &'static str, of: &Value| of[value].as_array().cloned().unwrap_or_default();
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let nodes: BTreeMap<String, Value> = array("nodes", &metadata["resolve"])
        .into_iter()
        .map(|node| (node["id"].as_str().unwrap_or_default().to_string(), node))
        .collect();
    let own = packages.iter().find(|p| p["name"] == "tapml-cli").context("no package tapml-cli")?;
    let mut waiting = vec![own["id"].as_str().unwrap_or_default().to_string()];
    let mut found = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !found.insert(id.clone()) {
            continue;
        }
        for dependency in nodes.get(&id).map(|node| array("deps", node)).unwrap_or_default() {
            // A build script or a test is not a part of the command.
            if array("dep_kinds", &dependency).iter().any(|kind| kind["kind"].is_null()) {
                waiting.extend(dependency["pkg"].as_str().map(str::to_string));
            }
        }
    }
    let theirs = |p: &&Value| !p["source"].is_null() && p["id"].as_str().is_some_and(|id| found.contains(id));
    Ok(packages.iter().filter(theirs).collect())
}

/// The texts of the licences in a package's folder.
fn read_texts(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|known| name.starts_with(known)) {
            texts.push(String::from_utf8_lossy(&std::fs::read(entry.path())?).into_owned());
        }
    }
    Ok(texts)
}
