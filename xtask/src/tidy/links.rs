//! Links of the tracked markdown: a relative one leads to a tracked file or folder, an anchor to a heading of its page.

use super::markdown::MarkdownPage;
use super::tracked_files;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A part of `docs/results/gpu.md`, whose links start in `docs`. They are checked there.
const PARTS: &[&str] = &["xtask/src/gpu/intro.md"];

/// What links can lead to.
struct LinkTargets {
    /// Files and folders, relative to the root, with `/` between their parts.
    paths: BTreeSet<String>,
    pages: BTreeMap<String, MarkdownPage>,
}

pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let mut targets = LinkTargets { paths: BTreeSet::new(), pages: BTreeMap::new() };
    for file in tracked_files(root)? {
        // A file that is deleted and not committed yet is tracked too.
        if root.join(&file).symlink_metadata().is_err() {
            continue;
        }
        if file.ends_with(".md") {
            let text = std::fs::read_to_string(root.join(&file)).with_context(|| file.clone())?;
            targets.pages.insert(file.clone(), MarkdownPage::parse(&text));
        }
        targets.add(&file);
    }
    let links = targets.pages.values().map(|page| page.links.len()).sum::<usize>();
    println!("tidy: {links} links in {} pages", targets.pages.len());
    errors.extend(targets.broken_links());
    Ok(())
}

impl LinkTargets {
    /// Adds a file, and the folders that it lies in.
    fn add(&mut self, file: &str) {
        let ends = file.match_indices('/').map(|(end, _)| end);
        self.paths.extend(ends.map(|end| file[..end].to_string()));
        self.paths.insert(file.to_string());
    }

    fn broken_links(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (path, page) in &self.pages {
            if PARTS.contains(&path.as_str()) {
                continue;
            }
            for link in &page.links {
                if let Some(problem) = self.problem(path, &link.target) {
                    broken.push(format!("{path}:{}: link to `{}`: {problem}", link.line, link.target));
                }
            }
        }
        broken
    }

    /// What is wrong with a link of the page at `from`.
    fn problem(&self, from: &str, link: &str) -> Option<String> {
        if has_scheme(link) {
            return None;
        }
        let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let path = if file.is_empty() {
            from.to_string()
        } else {
            let Some(path) = resolve(from, file) else {
                return Some("leads out of the repository".into());
            };
            path
        };
        if !path.is_empty() && !self.paths.contains(&path) {
            return Some(format!("`{path}` does not exist, or git does not track it"));
        }
        // Anchors of other files, such as `#L10` of a source, are the viewer's.
        let anchor = anchor?;
        let page = self.pages.get(&path)?;
        if page.anchors.contains(anchor) {
            return None;
        }
        Some(format!("`{path}` has no heading with the anchor `{anchor}`"))
    }
}

/// Whether a link begins with a scheme (`https:`, `mailto:`) or names a host: such links are not looked at.
fn has_scheme(link: &str) -> bool {
    let scheme = link.split(['/', '#', '?']).next().unwrap_or_default();
    scheme.contains(':') || link.starts_with("//")
}

/// The path that a link names, relative to the root: empty for the root itself, `None` if it lies outside.
fn resolve(from: &str, link: &str) -> Option<String> {
    let folder =
        if link.starts_with('/') { "" } else { from.rsplit_once('/').map_or("", |(folder, _)| folder) };
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(link.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(pages: &[(&str, &str)]) -> LinkTargets {
        let mut targets = LinkTargets { paths: BTreeSet::new(), pages: BTreeMap::new() };
        for (path, text) in pages {
            targets.pages.insert((*path).into(), MarkdownPage::parse(text));
            targets.add(path);
        }
        targets.add("crates/cli/src/main.rs");
        targets
    }

    #[test]
    fn files_folders_and_anchors_that_exist_are_right() {
        let good = "# Top\n[a](docs/a.md) [b](docs/a.md#two-words) [c](crates/cli) [d](#top) [e](https://x.y/z.md)\n\
                    [f](mailto:a@b) [g](crates/cli/src/main.rs#L3) [h](docs/../README.md) [i](/docs/) [j](.)";
        let targets = targets(&[("README.md", good), ("docs/a.md", "## Two words\n[up](../README.md#top)")]);
        assert_eq!(targets.broken_links(), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_told_with_file_and_line() {
        let bad = "# Top\n\n[a](a.md)\ntext [b](docs/a.md#three) and\n[c](#none), [d](../x.md), [e](crate)";
        let targets = targets(&[("README.md", bad), ("docs/a.md", "# Two\n[x](README.md)")]);
        assert_eq!(
            targets.broken_links(),
            [
                "README.md:3: link to `a.md`: `a.md` does not exist, or git does not track it",
                "README.md:4: link to `docs/a.md#three`: `docs/a.md` has no heading with the anchor `three`",
                "README.md:5: link to `#none`: `README.md` has no heading with the anchor `none`",
                "README.md:5: link to `../x.md`: leads out of the repository",
                "README.md:5: link to `crate`: `crate` does not exist, or git does not track it",
                "docs/a.md:2: link to `README.md`: `docs/README.md` does not exist, or git does not track it",
            ]
        );
    }
}
