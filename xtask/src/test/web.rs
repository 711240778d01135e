//! Types and tests of the browser's agent, which Node.js runs, and the packages that tests need of npm.

use super::programs::TestProgram;
use super::tally;
use anyhow::Result;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Fetches the pinned packages that check kernels with Chrome's WGSL front end, and those that build the browser's agent.
pub fn install(root: &Path) {
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

/// Types and tests of the browser's agent. None, with a line in the log of skips, if they cannot run.
pub fn program(root: &Path, skip_log: &Path) -> Result<Option<TestProgram>> {
    let folder = root.join("web");
    if !folder.join("node_modules").exists() {
        let mut skips = std::fs::OpenOptions::new().create(true).append(true).open(skip_log)?;
        writeln!(skips, "skipped: web: node: the npm packages of web are not installed")?;
        return Ok(None);
    }
    Ok(Some(TestProgram {
        name: "web".into(),
        folder,
        command: ["npm", "test", "--silent"].map(Into::into).into(),
        manifest: None,
        count: tally::node_tally,
        waits: false,
    }))
}
