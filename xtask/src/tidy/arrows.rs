//! Which crate may depend on which: the table of `ARCHITECTURE.md`.

use anyhow::{Context, Result};
use std::path::Path;

/// Crate and the workspace crates it may use. Only `tapml` sees every backend.
const ARROWS: &[(&str, &[&str])] = &[
    ("graph", &[]),
    ("testing", &[]),
    ("files", &["graph"]),
    ("import", &["graph", "files"]),
    ("onnx", &["graph"]),
    ("reference", &["graph", "onnx"]),
    ("device", &["graph"]),
    ("kernels", &["graph", "files", "device"]),
    ("wgsl", &["graph", "device"]),
    ("emulator", &["graph", "device", "wgsl"]),
    ("wgpu", &["graph", "device"]),
    ("cfamily", &["graph", "device", "wgsl"]),
    ("opencl", &["graph", "device", "cfamily"]),
    ("cuda", &["graph", "files", "device", "cfamily"]),
    ("hip", &["graph", "device", "cfamily"]),
    ("rpc", &["graph", "files", "device", "kernels", "exec"]),
    ("broker", &["graph", "rpc"]),
    ("exec", &["graph", "reference", "kernels", "device"]),
    ("migrate", &["graph", "files", "device", "kernels", "exec", "reference"]),
    ("cause", &["graph", "exec", "migrate", "reference"]),
    ("diagnose", &["graph", "device", "exec", "migrate", "reference", "cause"]),
    ("reduce", &["graph", "files", "import", "device", "kernels", "exec", "migrate", "reference"]),
    ("bugs", &["graph", "device", "kernels", "exec", "migrate", "reference", "cause", "diagnose"]),
    ("engine", &["graph", "files", "exec", "import"]),
    (
        "tapml",
        &[
            "graph",
            "files",
            "import",
            "reference",
            "device",
            "kernels",
            "emulator",
            "wgpu",
            "cuda",
            "hip",
            "opencl",
            "rpc",
            "broker",
            "exec",
            "migrate",
            "cause",
            "diagnose",
            "reduce",
            "bugs",
            "engine",
        ],
    ),
    ("cli", &["tapml"]),
    ("python", &["tapml"]),
];

pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let crates = std::fs::read_dir(root.join("crates"))?.chain(std::fs::read_dir(root.join("bindings"))?);
    for entry in crates {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = folder.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let table: toml::Table = text.parse().with_context(|| manifest.display().to_string())?;
        let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| *n == name) else {
            errors
                .push(format!("crate {name}: not in the table of allowed arrows (xtask/src/tidy/arrows.rs)"));
            continue;
        };
        let used = table.get("dependencies").and_then(toml::Value::as_table);
        for used in used.into_iter().flat_map(toml::Table::keys) {
            let target = if used == "tapml" { Some("tapml") } else { used.strip_prefix("tapml-") };
            if let Some(target) = target.filter(|t| !allowed.contains(t)) {
                errors.push(format!(
                    "crate {name} may not depend on {target}; it may on: {}",
                    allowed.join(", ")
                ));
            }
        }
    }
    Ok(())
}
