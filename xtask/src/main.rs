//! Developer tasks. `cargo xtask tidy` checks the house rules; `cargo xtask wire` writes the code that is generated from the
//! wire's schema; `cargo xtask wasm` builds the module that holds answers of sites to a form; `cargo xtask packages` installs what tests need as far as it may; `cargo xtask test` does so and runs every
//! test, `cargo xtask python` those of the Python package, `cargo xtask gpu` all that needs a GPU, `cargo xtask fuzz` what reads
//! bytes of strangers, `cargo xtask platforms` type-checks for other systems, `cargo xtask dist` packs the command for users,
//! `cargo xtask docs` makes a site of `docs/`. `cargo xtask goldens` writes a small checkpoint of `tests/goldens` with its
//! weights. Nothing here ships to users.

mod architectures;
mod dist;
mod docs;
mod fuzz;
mod gpu;
mod packages;
mod packed;
mod pages;
mod platforms;
mod process;
mod python;
mod records;
mod test;
mod tidy;
mod wasm;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy | wire | wasm | packages | platforms [--help] | test [--help] | python [pytest arguments] | gpu [--help] | fuzz [--help] | dist [--out DIR] | docs [--out DIR] | goldens NAME --out DIR";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if std::env::var_os(platforms::STAND_IN).is_some() {
        return platforms::stand_in(&arguments);
    }
    let result = match arguments.first().map(String::as_str) {
        Some("tidy") => tidy::run(&root()),
        Some("wire") => wire::run(&root()),
        Some("wasm") => wasm::run(&root()),
        Some("packages") => {
            packages::install();
            Ok(())
        }
        Some("test") => test::run(&root(), &arguments[1..]),
        Some("platforms") => platforms::run(&root(), &arguments[1..]),
        Some("gpu") => return gpu::main(&root(), &arguments[1..]),
        Some("fuzz") => fuzz::run(&root(), &arguments[1..]),
        Some("dist") => dist::run(&root(), &arguments[1..]),
        Some("docs") => docs::run(&root(), &arguments[1..]),
        Some("python") => python::run(&root(), &arguments[1..]),
        Some("goldens") => goldens(&arguments[1..]),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the folder of a golden with its weights, which the repository holds as a description.
fn goldens(arguments: &[String]) -> anyhow::Result<()> {
    let [name, option, out] = arguments else { anyhow::bail!(USAGE) };
    anyhow::ensure!(option == "--out", USAGE);
    tapml_testing::write_golden(name, Path::new(out)).map_err(anyhow::Error::msg)
}

fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(PathBuf::from).unwrap_or(manifest)
}

/// Where cargo builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
