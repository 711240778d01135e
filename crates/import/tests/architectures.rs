//! The page of architectures is generated from the registry and the sources: what is served, and what each cost to add.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tapml_import::{ARCHITECTURES, Config};

/// A source file that holds one architecture or several.
struct Source {
    name: String,
    /// The first sentence of its documentation.
    about: String,
    /// The `model_type`s of the architectures in it.
    model_types: Vec<String>,
    /// Lines of code: those of tests, comments and blanks are not what an architecture costs.
    lines: usize,
}

/// The files of `src/arch`, by name; folders count as one file with all that they hold.
fn sources() -> Vec<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arch");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let sources = paths.into_iter().filter(|p| !p.ends_with("mod.rs")).map(|path| {
        let text = if path.is_dir() { folder_text(&path) } else { std::fs::read_to_string(&path).unwrap() };
        let text = text.split("#[cfg(test)]").next().unwrap().to_string();
        Source {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            about: first_sentence(&text),
            model_types: model_types(&text),
            lines: text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with("//"))
                .count(),
        }
    });
    sources.filter(|s| !s.model_types.is_empty()).collect()
}

/// The text of all files of a folder, `mod.rs` first.
fn folder_text(folder: &Path) -> String {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| !p.ends_with("tests.rs"));
    paths.sort_by_key(|p| (!p.ends_with("mod.rs"), p.clone()));
    paths.iter().map(|p| std::fs::read_to_string(p).unwrap()).collect()
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

/// The version of Transformers whose files `tests/configs` has.
fn transformers(major: u32) -> String {
    let file = format!("tests/configs/transformers-{major}.json");
    let written = Config::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    written.root().text("transformers").unwrap().to_string()
}

fn page(sources: &[Source]) -> String {
    let mut lines: Vec<usize> = sources.iter().map(|s| s.lines).collect();
    lines.sort_unstable();
    let median = lines[lines.len() / 2];
    let [older, newer] = [4, 5].map(transformers);
    let types: usize = sources.iter().map(|s| s.model_types.len()).sum();
    let mut page = format!(
        "# Architectures

What a `config.json` may name as `model_type`, and the file of `crates/import/src/arch` that serves it. This page is
generated from the registry and the sources; a test checks that it is current (`TAPML_BLESS=1` writes it).
[models.md](models.md) has published models of them; `RECIPES.md` says how to add one.

Checkpoints written by Hugging Face Transformers 4 and 5 are read, by their published spelling and by what 5 renamed:
`rope_parameters`, `dtype`, `num_local_experts`. A test compares what {older} and {newer} write for each model type. All
spellings of a key are in `crates/import/src/spelling.rs`.

{types} model types in {} files. An architecture took {} to {} lines, **median {median}**, without tests, comments and blanks.

| file | `model_type` | what it is | lines |
|---|---|---|---:|
",
        sources.len(),
        lines[0],
        lines[lines.len() - 1],
    );
    for source in sources {
        let types: Vec<String> = source.model_types.iter().map(|t| format!("`{t}`")).collect();
        let about = source.about.replace('|', "\\|");
        writeln!(page, "| {} | {} | {about} | {} |", source.name, types.join(", "), source.lines).unwrap();
    }
    page
}

#[test]
fn the_page_of_architectures_is_current() {
    let sources = sources();
    let found: Vec<&str> = sources.iter().flat_map(|s| &s.model_types).map(String::as_str).collect();
    let registered: Vec<&str> = ARCHITECTURES.iter().flat_map(|a| a.model_types).copied().collect();
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<String>>();
    assert_eq!(set(&found), set(&registered), "`model_types: &[…]` in src/arch and the registry differ");
    assert_eq!(found.len(), registered.len(), "{found:?}");
    tapml_testing::expect_file("docs/reference/architectures.md", &page(&sources));
}
