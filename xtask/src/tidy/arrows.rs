//! Which crate may depend on which. The table of `ARCHITECTURE.md` is made from this list.

use super::crates::{CRATES, Crate};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADER: &str = "| crate | holds | may use |\n|---|---|---|\n";

pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    for folder in folders(root)? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match CRATES.iter().find(|listed| listed.name == name) {
            Some(listed) => check_manifest(listed, &folder.join("Cargo.toml"), errors)?,
            None => {
                errors.push(format!("crate {name}: not in the list of crates (xtask/src/tidy/crates.rs)"))
            }
        }
    }
    for (at, listed) in CRATES.iter().enumerate() {
        let below = &CRATES[..at];
        for used in listed.uses.iter().filter(|used| !below.iter().any(|known| known.name == **used)) {
            errors.push(format!("crate {}: uses {used}, which the list has further down", listed.name));
        }
        if let Some(circle) = circle_through(listed.name) {
            errors.push(format!("crates and their tests depend on each other: {}", circle.join(" → ")));
        }
    }
    check_document(root, errors)
}

/// The folders of the workspace's crates.
pub fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for top in ["crates", "bindings"] {
        for entry in std::fs::read_dir(root.join(top)).context(top)? {
            folders.push(entry?.path());
        }
    }
    Ok(folders.into_iter().filter(|folder| folder.join("Cargo.toml").is_file()).collect())
}

/// What a crate's manifest says must be what the list says: an arrow that is not used is none.
fn check_manifest(listed: &Crate, manifest: &Path, errors: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let table: toml::Table = text.parse().with_context(|| manifest.display().to_string())?;
    let uses = workspace_crates(&table, "dependencies");
    let mut tests_use = workspace_crates(&table, "dev-dependencies");
    tests_use.retain(|used| *used != listed.name && !uses.contains(used));
    for (what, found, allowed) in [("", uses, listed.uses), ("the tests of ", tests_use, listed.tests_use)] {
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        for used in found.iter().filter(|used| !allowed.contains(used.as_str())) {
            let all = allowed.iter().copied().collect::<Vec<_>>().join(", ");
            errors.push(format!("{what}crate {} may not depend on {used}; allowed are: {all}", listed.name));
        }
        for unused in allowed.iter().filter(|allowed| !found.contains(**allowed)) {
            errors.push(format!("{what}crate {}: {unused} is allowed and not used", listed.name));
        }
    }
    Ok(())
}

/// The names, without prefix, of the workspace's crates among the dependencies of a manifest.
fn workspace_crates(manifest: &toml::Table, section: &str) -> BTreeSet<String> {
    let section = manifest.get(section).and_then(toml::Value::as_table);
    let names = section.into_iter().flat_map(toml::Table::keys);
    names.filter(|name| name.starts_with("tapml")).map(|name| name.replace("tapml-", "")).collect()
}

/// A way from a crate over what it and its tests use back to it, if it is the first crate of the list on that way.
fn circle_through(start: &str) -> Option<Vec<&str>> {
    let position = |name: &str| CRATES.iter().position(|listed| listed.name == name);
    let first = position(start)?;
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![start]];
    while let Some(way) = ways.pop() {
        let last = &CRATES[position(way.last()?)?];
        for used in last.uses.iter().chain(last.tests_use) {
            let mut longer = way.clone();
            longer.push(used);
            if *used == start {
                return Some(longer);
            }
            if position(used).is_some_and(|at| at > first) && seen.insert(*used) {
                ways.push(longer);
            }
        }
    }
    None
}

/// Compares the table in the document with the list; `TAPML_BLESS=1` writes it.
fn check_document(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let path = root.join(DOCUMENT);
    let text = std::fs::read_to_string(&path).context(DOCUMENT)?;
    let Some((before, rest)) = text.split_once(HEADER) else {
        errors.push(format!("{DOCUMENT}: no table of crates that begins with `{}`", HEADER.trim_end()));
        return Ok(());
    };
    let end: usize = rest.split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
    let table: String = CRATES.iter().map(row).collect();
    if table == rest[..end] {
        return Ok(());
    }
    if std::env::var_os("TAPML_BLESS").is_some() {
        let whole = format!("{before}{HEADER}{table}{}", &rest[end..]);
        return std::fs::write(&path, whole).context(DOCUMENT);
    }
    errors.push(format!("{DOCUMENT}: the table of crates is not the list of xtask/src/tidy/crates.rs; `TAPML_BLESS=1 cargo xtask tidy` writes it"));
    Ok(())
}

fn row(listed: &Crate) -> String {
    let folder = match listed.name {
        name @ ("c" | "python") => format!("bindings/{name}"),
        name => name.into(),
    };
    let uses = if listed.uses.is_empty() { "–".into() } else { listed.uses.join(", ") };
    format!("| `{folder}` | {} | {uses} |\n", listed.holds)
}
