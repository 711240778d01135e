//! The links of a site of HTML pages: each leads to a file of the site, and to an anchor of it.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use walkdir::WalkDir;

/// Pages that repeat what the others hold, or whose links start at the root of a server.
const SKIPPED: &[&str] = &["print.html", "404.html", "toc.html"];

/// The problems that an error lists.
const SHOWN: usize = 20;

/// What a page links to, and what others can link to within it.
struct SitePage {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

/// Checks every link, and counts pages and links.
pub fn check(site: &Path) -> Result<(usize, usize)> {
    let mut files = BTreeSet::new();
    let mut pages = BTreeMap::new();
    for entry in WalkDir::new(site).sort_by_file_name() {
        let entry = entry?;
        let Ok(path) = entry.path().strip_prefix(site) else { continue };
        let name = path.to_string_lossy().replace('\\', "/");
        if name.ends_with(".html") && !SKIPPED.contains(&name.as_str()) {
            let text = std::fs::read_to_string(entry.path()).with_context(|| name.clone())?;
            pages.insert(name.clone(), SitePage::parse(&text));
        }
        files.insert(name);
    }
    let problems = problems(&files, &pages);
    let more = problems.len().saturating_sub(SHOWN);
    ensure!(
        problems.is_empty(),
        "{} links of the site lead nowhere:\n{}{}",
        problems.len(),
        problems[..problems.len() - more].join("\n"),
        if more > 0 { format!("\nand {more} more") } else { String::new() }
    );
    Ok((pages.len(), pages.values().map(|page| page.links.len()).sum()))
}

fn problems(files: &BTreeSet<String>, pages: &BTreeMap<String, SitePage>) -> Vec<String> {
    let mut problems = Vec::new();
    for (from, page) in pages {
        for link in &page.links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = file.split('?').next().unwrap_or_default();
            let to = if file.is_empty() { Some(from.clone()) } else { resolve(from, file) };
            let Some(to) = to.filter(|to| files.contains(to)) else {
                problems.push(format!("{from}: `{link}`: no such file"));
                continue;
            };
            let missing = pages.get(&to).is_some_and(|page| !page.anchors.contains(anchor));
            if !anchor.is_empty() && missing {
                problems.push(format!("{from}: `{link}`: `{to}` has no such anchor"));
            }
        }
    }
    problems
}

/// The file that a link of a page names, from the top of the site; `None` if it lies outside.
fn resolve(from: &str, link: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
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

impl SitePage {
    fn parse(text: &str) -> SitePage {
        let links = ["href", "src"].iter().flat_map(|name| attributes(text, name));
        let links = links.filter(|link| !is_elsewhere(link)).map(unescape).collect();
        SitePage { links, anchors: attributes(text, "id").map(unescape).collect() }
    }
}

/// The values of an attribute in a page's tags. Text holds no quotes that are not escaped behind a `=`.
fn attributes<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let start = format!(" {name}=\"");
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = rest.find(&start)? + start.len();
        let end = rest[at..].find('"')?;
        let value = &rest[at..at + end];
        rest = &rest[at + end..];
        Some(value)
    })
}

/// Whether a link has a scheme or names a host.
fn is_elsewhere(link: &str) -> bool {
    let scheme = link.split(['/', '#', '?']).next().unwrap_or_default();
    scheme.contains(':') || link.starts_with("//")
}

fn unescape(value: &str) -> String {
    value
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(pages: &[(&str, &str)]) -> Vec<String> {
        let files = pages.iter().map(|(name, _)| (*name).to_string()).collect();
        let pages = pages.iter().filter(|(name, _)| name.ends_with(".html"));
        problems(&files, &pages.map(|(name, text)| ((*name).to_string(), SitePage::parse(text))).collect())
    }

    #[test]
    fn links_lead_to_files_and_anchors() {
        let index = r##"<a href="guide/a.html#two"> <img src="x.png"> <a href="https://x.y/z"> <a href="#one"> <h1 id="one">"##;
        let guide = r#"<h2 id="two"> <a href="../index.html">"#;
        assert_eq!(
            site(&[("index.html", index), ("guide/a.html", guide), ("x.png", "")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_link_that_leads_nowhere_is_told() {
        let index = r##"<a href="b.html"> <a href="a.html#none"> <a href="../c.html"> <a href="#none">"##;
        assert_eq!(
            site(&[("index.html", index), ("a.html", "")]),
            [
                "index.html: `b.html`: no such file",
                "index.html: `a.html#none`: `a.html` has no such anchor",
                "index.html: `../c.html`: no such file",
                "index.html: `#none`: `index.html` has no such anchor",
            ]
        );
    }
}
