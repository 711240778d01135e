//! The pages of `docs/` as a book: its summary has every page, and no other.

use super::markdown::MarkdownPage;
use super::tracked_files;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;

const FOLDER: &str = "docs/";
/// The list of chapters, as mdBook reads it.
pub const SUMMARY: &str = "docs/SUMMARY.md";

pub fn check(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let summary = std::fs::read_to_string(root.join(SUMMARY)).context(SUMMARY)?;
    // A file that is deleted and not committed yet is tracked too.
    let files = tracked_files(root)?;
    let files = files.iter().filter(|file| root.join(file).symlink_metadata().is_ok());
    let pages = files.filter_map(|file| file.strip_prefix(FOLDER).filter(|page| page.ends_with(".md")));
    errors.extend(problems(&summary, &pages.collect()));
    Ok(())
}

/// What is wrong with a summary of pages, which are named from the book's folder as its links are.
fn problems(summary: &str, pages: &BTreeSet<&str>) -> Vec<String> {
    let links = MarkdownPage::parse(summary).links;
    let mut named = BTreeSet::new();
    let mut problems = Vec::new();
    for link in &links {
        let target = link.target.as_str();
        if !pages.contains(target) {
            problems.push(format!("{SUMMARY}:{}: `{target}` is no page of {FOLDER}", link.line));
        } else if !named.insert(target) {
            problems.push(format!("{SUMMARY}:{}: `{target}` is named a second time", link.line));
        }
    }
    let own = SUMMARY.strip_prefix(FOLDER).unwrap_or(SUMMARY);
    for page in pages.iter().filter(|page| **page != own && !named.contains(**page)) {
        problems.push(format!("{FOLDER}{page}: not in {SUMMARY}: give it a line there"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_every_page_one_time() {
        let pages = BTreeSet::from(["SUMMARY.md", "index.md", "guide/a.md", "guide/b.md"]);
        let right = "# Summary\n\n[T](index.md)\n\n# Guide\n\n* [A](guide/a.md)\n  * [B](guide/b.md)\n";
        assert_eq!(problems(right, &pages), Vec::<String>::new());
        let wrong = "[T](index.md)\n\n* [A](guide/a.md)\n* [A](guide/a.md)\n* [C](guide/c.md)\n";
        assert_eq!(
            problems(wrong, &pages),
            [
                "docs/SUMMARY.md:4: `guide/a.md` is named a second time",
                "docs/SUMMARY.md:5: `guide/c.md` is no page of docs/",
                "docs/guide/b.md: not in docs/SUMMARY.md: give it a line there",
            ]
        );
    }
}
