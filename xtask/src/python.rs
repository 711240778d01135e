//! `cargo xtask python`: builds the extension module of the Python package beside its sources and runs its tests in a
//! virtual environment of its own. Without Python they are skipped, and said to be.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// The feature under which the extension is more than an empty crate. Whoever builds the workspace before with it, as
/// `.ci/run` does, has built most of what this needs.
const FEATURE: &str = "tapml-python/extension";

/// What agents of other runtimes need, with the runtime that most of their tests run on.
const AGENTS: &[&str] = &["onnx", "onnxruntime", "websockets", "protobuf", "ml_dtypes"];

/// Further runtimes, with their packages: tested only where `TAPML_RUNTIMES` names them, as in `TAPML_RUNTIMES=openvino,tvm`,
/// since most of them are large.
const RUNTIMES: &[(&str, &[&str])] = &[
    ("openvino", &["openvino"]),
    ("tract", &["tract"]),
    ("tvm", &["apache-tvm"]),
    ("iree", &["iree-base-compiler", "iree-base-runtime"]),
    ("torch", &["torch"]),
    ("executorch", &["executorch"]),
    ("litert", &["litert-torch"]),
];

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let folder = root.join("target").join("python");
    std::fs::create_dir_all(root.join("target")).context("could not create target/")?;
    let python = folder.join("bin").join("python");
    if !python.exists() && !succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder)) {
        println!(
            "no python3 with venv: the tests of the Python package are skipped (to install: apt-get install python3-venv)"
        );
        return Ok(());
    }
    let mut pip = Command::new(&python);
    if !succeeds(pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "numpy", "pytest"])) {
        bail!("pip could not install numpy and pytest into {}", folder.display());
    }
    let mut pip = Command::new(&python);
    if !succeeds(pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]).args(agents()?)) {
        println!(
            "pip could not install {}: the tests of agents that need them are skipped",
            agents()?.join(", ")
        );
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--workspace", "--lib", "--examples", "--features", FEATURE]).current_dir(root);
    if !succeeds(&mut build) {
        bail!("the extension module does not build");
    }
    let package = root.join("bindings").join("python");
    let built = crate::target(root).join("debug").join("libtapml_native.so");
    let module = package.join("python").join("tapml").join("_native.abi3.so");
    std::fs::copy(&built, &module).with_context(|| format!("could not copy {}", built.display()))?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]).args(arguments).current_dir(&package);
    tests
        .env("PYTHONPATH", package.join("python"))
        .env("TAPML_BINARY", crate::target(root).join("debug/tapml"));
    if !succeeds(&mut tests) {
        bail!("tests of the Python package failed");
    }
    Ok(())
}

/// The packages for the tests of agents.
fn agents() -> Result<Vec<&'static str>> {
    let mut packages = AGENTS.to_vec();
    let asked = std::env::var("TAPML_RUNTIMES").unwrap_or_default();
    for word in asked.split([',', ' ']).filter(|word| !word.is_empty()) {
        let Some((_, more)) = RUNTIMES.iter().find(|(name, _)| *name == word) else {
            let known: Vec<_> = RUNTIMES.iter().map(|(name, _)| *name).collect();
            bail!("TAPML_RUNTIMES names `{word}`; known: {}", known.join(", "));
        };
        packages.extend_from_slice(more);
    }
    Ok(packages)
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
