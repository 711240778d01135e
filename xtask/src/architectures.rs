//! `docs/reference/architectures.md`, made from the sources of the architectures: what is served, and what each cost to add.

use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The page, from the root.
const PAGE: &str = "docs/reference/architectures.md";

/// Where the architectures are, from the root.
const FOLDER: &str = "crates/import/src/arch";

/// Where the configurations are that versions of Transformers write, from the root.
const CONFIGS: &str = "crates/import/tests/configs";

/// What is served of each model type, a line each. The test `served` of the engine checks and writes it.
const SERVED: &str = "crates/engine/tests/models/served.txt";

/// A source file that holds one architecture or several.
struct SourceFile {
    name: String,
    /// The first sentence of its documentation.
    about: String,
    /// The `model_type`s of the architectures in it.
    model_types: Vec<String>,
    /// Lines of code: those of tests, comments and blanks are not what an architecture costs.
    lines: usize,
}

impl SourceFile {
    fn parse(name: String, text: &str) -> Self {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
        SourceFile {
            name,
            about: first_sentence(text),
            model_types: model_types(text),
            lines: text.lines().map(str::trim).filter(is_code).count(),
        }
    }
}

/// Says what is wrong with the page or the files it is made from; see [`crate::pages::check`].
pub fn check(root: &Path, bless: bool, errors: &mut Vec<String>) -> Result<()> {
    let from = format!("the files in {FOLDER} and {SERVED}");
    crate::pages::check(root, (PAGE, &from), make(root), bless, errors)
}

/// The text of the page.
fn make(root: &Path) -> Result<String> {
    let sources = sources(&root.join(FOLDER))?;
    let mut lines: Vec<usize> = sources.iter().map(|s| s.lines).collect();
    lines.sort_unstable();
    ensure!(!lines.is_empty(), "{FOLDER} has no architecture");
    let (least, median, most) = (lines[0], lines[lines.len() / 2], lines[lines.len() - 1]);
    let (older, newer) = (transformers(root, 4)?, transformers(root, 5)?);
    let types: usize = sources.iter().map(|s| s.model_types.len()).sum();
    let served = read(&root.join(SERVED))?;
    let mut page = format!(
        "# Architectures

What a `config.json` may name as `model_type`, and the file of `crates/import/src/arch` that serves it. This page is
generated. `cargo xtask tidy` checks that it is current. `TAPML_BLESS=1 cargo xtask tidy` writes it.
[models.md](models.md) has published models of them; `RECIPES.md` says how to add one.

Checkpoints written by Hugging Face Transformers 4 and 5 are read, by their published spelling and by what 5 renamed:
`rope_parameters`, `dtype`, `num_local_experts`. A test compares what {older} and {newer} write for each model type. All
spellings of a key are in `crates/import/src/spelling.rs`.

{types} model types in {} files. An architecture took {least} to {most} lines, **median {median}**, without tests, comments and blanks.

`tapml serve` gives what the column *served* says. The test `served` of the engine loads a small checkpoint of each for it, and compares
every text that is served with the one that the model gives alone.

| file | `model_type` | what it is | served | lines |
|---|---|---|---|---:|
",
        sources.len(),
    );
    for source in sources {
        let types: Vec<String> = source.model_types.iter().map(|t| format!("`{t}`")).collect();
        let about = source.about.replace('|', "\\|");
        let (types, served) = (types.join(", "), served_as(&source, &served)?);
        let _ = writeln!(page, "| {} | {types} | {about} | {served} | {} |", source.name, source.lines);
    }
    Ok(page)
}

/// What is served of a file's architectures, as the list says it.
fn served_as(source: &SourceFile, list: &str) -> Result<String> {
    let mut found: Vec<&str> = Vec::new();
    for name in &source.model_types {
        let line = list.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let line = line.with_context(|| format!("{SERVED} does not have `{name}`: it has no golden"))?;
        if !found.contains(&line) {
            found.push(line);
        }
    }
    Ok(found.join("; ").replace('|', "\\|"))
}

/// The files of the folder that hold architectures, by name; folders count as one file with all that they hold.
fn sources(folder: &Path) -> Result<Vec<SourceFile>> {
    let mut sources = Vec::new();
    for path in paths(folder)?.into_iter().filter(|path| !path.ends_with("mod.rs")) {
        let text = if path.is_dir() { folder_text(&path)? } else { read(&path)? };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        sources.push(SourceFile::parse(name, &text));
    }
    sources.retain(|source| !source.model_types.is_empty());
    Ok(sources)
}

/// The text of all files of a folder, `mod.rs` first.
fn folder_text(folder: &Path) -> Result<String> {
    let mut paths = paths(folder)?;
    paths.retain(|p| !p.ends_with("tests.rs"));
    paths.sort_by_key(|p| (!p.ends_with("mod.rs"), p.clone()));
    paths.iter().map(|path| read(path)).collect()
}

/// What a folder holds, sorted.
fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn first_sentence(text: &str) -> String {
    let docs: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let docs = docs.join(" ");
    let end = docs.find(". ").unwrap_or(docs.len());
    docs[..end].trim_end_matches('.').to_string()
}

/// The texts in quotes of every `model_types: &[…]`.
fn model_types(text: &str) -> Vec<String> {
    let lists = text.split("model_types: &[").skip(1).filter_map(|rest| rest.split(']').next());
    lists.flat_map(|list| list.split('"').skip(1).step_by(2).map(str::to_string)).collect()
}

/// The version of Transformers whose files [`CONFIGS`] has.
fn transformers(root: &Path, major: u32) -> Result<String> {
    let file = format!("{CONFIGS}/transformers-{major}.json.zst");
    let packed = std::fs::read(root.join(&file)).with_context(|| file.clone())?;
    let text = tapml_testing::unpack(&packed).with_context(|| file.clone())?;
    let text = String::from_utf8(text).with_context(|| file.clone())?;
    // Python writes numbers such as `Infinity`, so that not all of the file is JSON.
    let version = text.split_once("\"transformers\":").and_then(|(_, rest)| rest.split('"').nth(1));
    Ok(version.with_context(|| format!("{file}: no text `transformers`"))?.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_of_tests_comments_and_blanks_do_not_count() {
        let text = "//! A model | of two. More.\n\n/// Doc.\nmodel_types: &[\"a\", \"b\"],\nmodel_types: &[\"c\"],\n    // why\n}\n\n#[cfg(test)]\nmod tests {}\n";
        let source = SourceFile::parse("x".into(), text);
        assert_eq!(source.about, "A model | of two");
        assert_eq!((source.lines, source.model_types), (3, ["a", "b", "c"].map(String::from).to_vec()));
    }

    #[test]
    fn an_architecture_that_the_page_does_not_have_is_a_violation() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let violations = |bless| {
            let mut errors = Vec::new();
            check(root, bless, &mut errors).unwrap();
            errors
        };
        for part in [FOLDER, CONFIGS, "docs/reference", "crates/engine/tests/models"] {
            std::fs::create_dir_all(root.join(part)).unwrap();
        }
        assert!(violations(false)[0].contains("has no architecture"), "{:?}", violations(false));
        let arch = |name: &str| root.join(FOLDER).join(name);
        std::fs::write(arch("a.rs"), "//! A | b.\nmodel_types: &[\"a\"],\n").unwrap();
        std::fs::write(arch("mod.rs"), "model_types: &[\"no\"],\n").unwrap();
        assert!(violations(false)[0].contains("transformers-4.json"), "{:?}", violations(false));
        for major in [4, 5] {
            let file = root.join(CONFIGS).join(format!("transformers-{major}.json.zst"));
            let text = format!(r#"{{"transformers":"{major}.0"}}"#);
            std::fs::write(file, tapml_testing::pack(text.as_bytes())).unwrap();
        }
        assert!(violations(false)[0].contains("served.txt"), "{:?}", violations(false));
        std::fs::write(root.join(SERVED), "aa: no\n").unwrap();
        assert!(violations(false)[0].contains("does not have `a`"), "{:?}", violations(false));
        std::fs::write(root.join(SERVED), "a: text\nb: vectors\n").unwrap();
        assert!(violations(false)[0].contains("architectures.md is not what"), "{:?}", violations(false));
        assert_eq!(violations(true), Vec::<String>::new());
        assert_eq!(violations(false), Vec::<String>::new());
        let page = std::fs::read_to_string(root.join(PAGE)).unwrap();
        assert!(
            page.contains("what 4.0 and 5.0 write") && page.ends_with("| a | `a` | A \\| b | text | 1 |\n"),
            "{page}"
        );
        std::fs::create_dir(arch("b")).unwrap();
        std::fs::write(arch("b").join("mod.rs"), "model_types: &[\"b\"],\n").unwrap();
        assert!(violations(false)[0].contains("architectures.md is not what"), "{:?}", violations(false));
    }
}
