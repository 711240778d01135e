//! Lists that must be complete: every operator file is in the operator list, and has a reference or a definition, and a
//! kernel. Tests quantify over the lists; this rule sees that no file is left out of them.

use anyhow::{Context, Result};
use std::path::Path;

/// Files of `graph/src/op` that are no operators.
const HELPERS: &[&str] = &[
    "activation",
    "broadcast",
    "dot_product",
    "elementwise",
    "extreme",
    "fill",
    "find",
    "neutral",
    "mod",
    "packing",
    "sample",
    "foreign",
    "saturation",
    "shape",
    "subgraph",
    "tests",
];

pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let folder = root.join("crates/graph/src/op");
    let list = std::fs::read_to_string(folder.join("mod.rs")).context("crates/graph/src/op/mod.rs")?;
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if HELPERS.contains(&name.as_str()) || path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        if !list.contains(&format!("    {name}::")) {
            errors.push(format!("crates/graph/src/op/{name}.rs is not in the operator list of op/mod.rs"));
        }
        let fused = std::fs::read_to_string(&path)?.contains("fn definition(");
        let reference = root.join(format!("crates/reference/src/op/{name}.rs"));
        if fused == reference.exists() {
            let problem = if fused {
                "is fused and needs no reference file, but has one"
            } else {
                "has no reference file"
            };
            errors.push(format!("operator `{name}` {problem} (crates/reference/src/op/{name}.rs)"));
        }
        if !root.join(format!("crates/kernels/src/kernel/{name}/mod.rs")).exists() {
            errors.push(format!("operator `{name}` has no kernel (crates/kernels/src/kernel/{name}/mod.rs)"));
        }
    }
    Ok(())
}
