//! `cargo xtask wasm`: builds crates/constraint as the WebAssembly module of sites, packed by the program `zstd` into `web/dist`.
//!
//! Compilers differ in what they make of the same sources, so that the module itself cannot be compared with a fresh build. Beside it
//! stands what it was built from, file by file, and `cargo xtask tidy` compares that. It takes the standard library for
//! `wasm32-unknown-unknown` (`rustup target add wasm32-unknown-unknown`).

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Command;

const PACKAGE: &str = "tapml-constraint";
const TRIPLE: &str = "wasm32-unknown-unknown";
/// Of `Cargo.toml`.
const PROFILE: &str = "wasm";
/// The module, and what it was built from.
const MODULE: &str = "web/dist/form.wasm.zst";
const INPUTS: &str = "web/dist/form.wasm.txt";

/// Folders and files that are compiled; of crates/graph the error type is used.
const SOURCES: [&str; 3] =
    ["crates/constraint/Cargo.toml", "crates/constraint/src", "crates/graph/src/error.rs"];
/// Crates of others in it whose versions are told.
const LIBRARIES: [&str; 6] = ["derivre", "llguidance", "regex-syntax", "serde_json", "strum", "toktrie"];

/// Bytes that the module's stack and all of its memory may take: the stack ends in a trap, and not in other data.
const LINKING: [&str; 2] = ["-zstack-size=1048576", "--max-memory=1073741824"];

/// Builds and packs it.
pub fn run(root: &Path) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "-p", PACKAGE, "--lib", "--crate-type", "cdylib", "--target", TRIPLE]);
    cargo.args(["--profile", PROFILE, "--"]);
    cargo.args(LINKING.map(|option| format!("-Clink-arg={option}")));
    let status = cargo.current_dir(root).status().context("cargo")?;
    ensure!(status.success(), "the module is not built; `rustup target add {TRIPLE}` brings what it needs");
    let built = crate::target(root).join(TRIPLE).join(PROFILE).join("tapml_constraint.wasm");
    let (module, inputs) = (root.join(MODULE), root.join(INPUTS));
    let mut zstd = Command::new("zstd");
    // A file of its own making would have the mode of the module, which cargo makes executable.
    let packed = std::fs::File::create(&module).context(MODULE)?;
    zstd.args(["--ultra", "-22", "--quiet", "--stdout"]).arg(&built).stdout(packed);
    let status = zstd.status().context("could not start the program `zstd`, which packs the module")?;
    ensure!(status.success(), "`zstd` failed");
    std::fs::write(&inputs, describe(root)?)?;
    let bytes = |path: &Path| std::fs::metadata(path).map(|m| m.len());
    println!("wrote {MODULE}: {} bytes, {} unpacked", bytes(&module)?, bytes(&built)?);
    Ok(())
}

/// Says if the module was built from something else.
pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let stored = std::fs::read_to_string(root.join(INPUTS)).unwrap_or_default();
    let made = describe(root)?;
    let known: Vec<&str> = stored.lines().collect();
    let now: Vec<&str> = made.lines().collect();
    if let Some(line) =
        now.iter().find(|line| !known.contains(line)).or(known.iter().find(|l| !now.contains(l)))
    {
        let name = line.split(' ').next().unwrap_or_default();
        errors.push(format!("{MODULE} is built from another `{name}`; `cargo xtask wasm` builds it again"));
    }
    Ok(())
}

/// A line for each input: its name, then its hash or version. Line ends are those of the repository.
fn describe(root: &Path) -> Result<String> {
    let mut lines = Vec::new();
    for source in SOURCES {
        for entry in walkdir::WalkDir::new(root.join(source)).sort_by_file_name() {
            let entry = entry?;
            if entry.file_type().is_file() {
                let name = entry.path().strip_prefix(root)?.display().to_string().replace('\\', "/");
                let text = std::fs::read_to_string(entry.path()).with_context(|| name.clone())?;
                lines.push(format!("{name} {}", hash(text.replace("\r\n", "\n").as_bytes())));
            }
        }
    }
    let read = |name: &str| -> Result<toml::Table> {
        Ok(std::fs::read_to_string(root.join(name)).with_context(|| name.to_string())?.parse()?)
    };
    let manifest = read("Cargo.toml")?;
    let profile =
        manifest.get("profile").and_then(|all| all.get(PROFILE)).context("no profile of the module")?;
    lines.push(format!("profile.{PROFILE} {}", hash(profile.to_string().as_bytes())));
    let lock = read("Cargo.lock")?;
    for package in lock.get("package").and_then(|all| all.as_array()).into_iter().flatten() {
        let text = |key: &str| package.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        if LIBRARIES.contains(&text("name")) {
            lines.push(format!("{} {}", text("name"), text("version")));
        }
    }
    lines.push(format!("{MODULE} {}", hash(&std::fs::read(root.join(MODULE)).context(MODULE)?)));
    Ok(lines.join("\n") + "\n")
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_built_from_what_is_here() {
        let mut errors = Vec::new();
        check(&crate::root(), &mut errors).unwrap();
        assert_eq!(errors, [""; 0]);
    }

    #[test]
    fn a_change_of_an_input_makes_it_stale() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in [MODULE, INPUTS, "Cargo.toml", "Cargo.lock"].into_iter().chain(SOURCES) {
            for entry in walkdir::WalkDir::new(crate::root().join(name)).into_iter().map(Result::unwrap) {
                let to = root.join(entry.path().strip_prefix(crate::root()).unwrap());
                if entry.file_type().is_file() {
                    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                    std::fs::copy(entry.path(), to).unwrap();
                }
            }
        }
        let told = || {
            let mut errors = Vec::new();
            check(root, &mut errors).unwrap();
            errors.join("\n")
        };
        assert_eq!(told(), "");
        let (file, inputs) = (root.join("crates/constraint/src/lark.rs"), root.join(INPUTS));
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + "// more\n").unwrap();
        assert!(told().contains("another `crates/constraint/src/lark.rs`; `cargo xtask wasm`"), "{}", told());
        std::fs::write(&inputs, describe(root).unwrap() + "gone.rs 5\n").unwrap();
        assert!(told().contains("another `gone.rs`"), "{}", told());
    }
}
