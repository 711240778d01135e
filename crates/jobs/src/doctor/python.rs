//! Python with TapML's package, and the runtimes that its agents serve.
//!
//! Python is asked one time for all runtimes; each answer is a line of JSON, the interpreter's first.
//! Starting a runtime takes seconds, so it happens only where it was named.

use super::part::{PartKind, PartState, PlatformPart};
use super::subprocess;
use crate::agents::{HINT, RuntimeServer, python};
use crate::platform::PlatformSpec;
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;
use tapml_exec::NodeServer;
use tapml_migrate::Progress;

/// How long Python may take to look for packages, which a slow disk keeps.
const LIMIT: Duration = Duration::from_secs(60);

/// What `python -m tapml.agents --list-runtimes` says of Python.
#[derive(Deserialize)]
struct PythonSetup {
    /// The version of Python.
    python: String,
    /// The version of TapML's package, empty if it is not installed but on the path.
    tapml: Option<String>,
    /// Whether it has the part that is compiled.
    extension: bool,
    /// Packages that agents need and that are not there.
    lacks: Vec<String>,
}

/// What it says of a runtime.
#[derive(Deserialize)]
struct RuntimePackage {
    /// Its word.
    runtime: String,
    /// What `pip install` takes.
    install: String,
    /// `None` if it is not installed.
    version: Option<String>,
}

/// Python, then these runtimes; with `start` each that is installed is started.
pub(super) fn examine(words: &[&str], start: bool, progress: &dyn Progress) -> Vec<PlatformPart> {
    progress.stage("python", 0);
    let mut command = Command::new(python());
    command.args(["-m", "tapml.agents", "--list-runtimes"]).env("PYTHONSAFEPATH", "1");
    let listed = subprocess::output(&mut command, LIMIT).and_then(|text| parse(&text));
    let (interpreter, packages) = match listed {
        Ok(found) => found,
        Err(reason) => return lacking(words, &reason),
    };
    let mut parts = vec![describe(&interpreter)];
    for word in words {
        progress.stage(word, 0);
        let package = packages.iter().find(|package| package.runtime == *word);
        parts.push(examine_runtime(word, package, start && interpreter.lacks.is_empty()));
    }
    parts
}

/// The lines of the list.
fn parse(text: &str) -> Result<(PythonSetup, Vec<RuntimePackage>), String> {
    let mut lines = text.lines();
    let wrong = |error: serde_json::Error| format!("Python's list of runtimes is not understood: {error}");
    let interpreter = serde_json::from_str(lines.next().unwrap_or_default()).map_err(wrong)?;
    let packages = lines.map(|line| serde_json::from_str(line).map_err(wrong)).collect::<Result<_, _>>()?;
    Ok((interpreter, packages))
}

/// Python without what agents need.
fn lacking(words: &[&str], reason: &str) -> Vec<PlatformPart> {
    let version = subprocess::output(Command::new(python()).arg("--version"), LIMIT).unwrap_or_default();
    let version = version.trim().trim_start_matches("Python ").to_string();
    let python = PlatformPart::new("python", PartKind::Python, PartState::Missing)
        .with_name(&python().to_string_lossy())
        .with_version(&version)
        .with_reason(reason, Some(HINT));
    let runtime = |word: &&str| {
        PlatformPart::new(word, PartKind::Runtime, PartState::Missing)
            .with_reason("Python has no agents", Some(HINT))
    };
    std::iter::once(python).chain(words.iter().map(runtime)).collect()
}

/// The part of Python itself.
fn describe(found: &PythonSetup) -> PlatformPart {
    let tapml = match found.tapml.as_deref() {
        Some("") | None => "tapml on the path".to_string(),
        Some(version) => format!("tapml {version}"),
    };
    let extension = if found.extension { "" } else { ", without the extension module: agents only" };
    let name = format!("{}, {tapml}{extension}", python().to_string_lossy());
    let part = PlatformPart::new("python", PartKind::Python, PartState::Ready)
        .with_name(&name)
        .with_version(&found.python);
    if found.lacks.is_empty() {
        return part;
    }
    let reason = format!("agents need {}", found.lacks.join(", "));
    PlatformPart { state: PartState::Missing, ..part }.with_reason(&reason, Some(HINT))
}

/// One runtime, started if that is wanted.
fn examine_runtime(word: &str, package: Option<&RuntimePackage>, start: bool) -> PlatformPart {
    let part = PlatformPart::new(word, PartKind::Runtime, PartState::Missing);
    let Some(package) = package else {
        // The list of words of this build and that of the package differ.
        return part.with_reason("the package in Python is of another version", Some(HINT));
    };
    let Some(version) = &package.version else {
        let hint = format!("`{} -m pip install {}`", python().to_string_lossy(), package.install);
        return part.with_reason("not installed", Some(&hint));
    };
    let part = PlatformPart { state: PartState::Installed, ..part }
        .with_name(&package.install)
        .with_version(version);
    if !start {
        return part;
    }
    let spec = PlatformSpec { word: word.into(), index: 0, options: Vec::new() };
    match RuntimeServer::start(&spec) {
        Ok(server) => PlatformPart { state: PartState::Ready, ..part }.with_name(&server.describe().device),
        Err(error) => {
            PlatformPart { state: PartState::Broken, ..part }.with_reason(&error.to_string(), error.hint())
        }
    }
}
