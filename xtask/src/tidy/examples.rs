//! Cargo has rustdoc read a whole crate to look for examples in its documentation. A crate without any says so in its manifest,
//! which saves that time in every run of the tests; one with an example must not, or the example would not be tried.

use super::File;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub fn check(root: &Path, files: &[File], errors: &mut Vec<String>) -> Result<()> {
    for folder in super::arrows::folders(root)? {
        let source = folder.join("src");
        if !source.join("lib.rs").is_file() {
            continue;
        }
        let manifest = folder.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let table: toml::Table = text.parse().with_context(|| manifest.display().to_string())?;
        let library = table.get("lib").and_then(toml::Value::as_table);
        let tried = library.and_then(|lib| lib.get("doctest")?.as_bool()).unwrap_or(true);
        let source = PathBuf::from(source.strip_prefix(root)?);
        let found = files.iter().find(|file| file.path.starts_with(&source) && has_example(&file.text));
        errors.extend(complaint(&manifest.strip_prefix(root)?.display().to_string(), tried, found));
    }
    Ok(())
}

fn complaint(manifest: &str, tried: bool, found: Option<&File>) -> Option<String> {
    if tried && found.is_none() {
        return Some(format!(
            "{manifest}: no file has an example in its documentation; `[lib]` says `doctest = false` then"
        ));
    }
    let found = found.filter(|_| !tried)?;
    Some(format!(
        "{manifest}: `doctest = false`, but {} has an example in its documentation",
        found.path.display()
    ))
}

/// Whether a comment of documentation holds a block of Rust.
fn has_example(text: &str) -> bool {
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim_start();
        let Some(comment) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
        let Some(word) = comment.trim_start().strip_prefix("```") else { continue };
        let is_rust = ["", "rust", "no_run", "should_panic", "compile_fail", "ignore"]
            .contains(&word.split(',').next().unwrap_or_default().trim());
        if !inside && is_rust {
            return true;
        }
        inside = !inside;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_rust_are_told_from_others() {
        for example in
            ["//! ```\n//! a();\n//! ```", "    /// ```no_run\n", "/// ```text\n/// ```\n/// ```rust,no_run"]
        {
            assert!(has_example(example), "{example}");
        }
        for none in ["//! ```text\n//! a\n//! ```\n", "let x = \"```\";", "// ```", "/// text"] {
            assert!(!has_example(none), "{none}");
        }
    }

    #[test]
    fn a_manifest_says_whether_there_are_examples() {
        let file = File { path: "crates/a/src/lib.rs".into(), text: String::new() };
        assert!(complaint("a", true, Some(&file)).is_none() && complaint("a", false, None).is_none());
        assert!(complaint("a", true, None).is_some_and(|text| text.contains("no file")));
        assert!(complaint("a", false, Some(&file)).is_some_and(|text| text.contains("src/lib.rs")));
    }
}
