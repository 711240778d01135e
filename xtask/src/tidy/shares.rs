//! Shares of documentation and of comments among the lines that readers of a library crate see. Blank lines and tests do not count.

use super::File;
use std::collections::BTreeMap;

/// Least share of documentation in the libraries together, per cent.
const DOCS: f64 = 15.0;
/// Least share of documentation in each library, per cent.
const DOCS_EACH: f64 = 10.0;
/// Least share of comments in the libraries together, per cent.
const COMMENTS: f64 = 2.0;
/// Crates that nobody calls from outside.
const NO_LIBRARIES: &[&str] = &["bugs", "cli", "testing"];

/// Lines by what they hold.
#[derive(Clone, Copy, Default)]
struct Lines {
    all: usize,
    docs: usize,
    comments: usize,
}

impl Lines {
    /// Of a file, up to its unit tests.
    fn count(text: &str) -> Lines {
        let mut lines = Lines::default();
        let source = text.lines().map(str::trim).take_while(|line| !line.starts_with("#[cfg(test)]"));
        for line in source.filter(|line| !line.is_empty()) {
            lines.all += 1;
            if line.starts_with("///") || line.starts_with("//!") {
                lines.docs += 1;
            } else if line.starts_with("//") {
                lines.comments += 1;
            }
        }
        lines
    }

    fn and(self, other: Lines) -> Lines {
        Lines {
            all: self.all + other.all,
            docs: self.docs + other.docs,
            comments: self.comments + other.comments,
        }
    }

    /// Per cent of documentation and of comments.
    fn shares(self) -> (f64, f64) {
        let share = |part: usize| 100.0 * part as f64 / self.all.max(1) as f64;
        (share(self.docs), share(self.comments))
    }
}

pub fn check(files: &[File], errors: &mut Vec<String>) {
    let mut crates: BTreeMap<&str, Lines> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test()) {
        let parts: Vec<&str> = file.path.iter().filter_map(|part| part.to_str()).collect();
        if let ["crates", name, "src", ..] = parts[..]
            && !NO_LIBRARIES.contains(&name)
        {
            let sum = crates.entry(name).or_default();
            *sum = sum.and(Lines::count(&file.text));
        }
    }
    for (name, lines) in &crates {
        let (docs, _) = lines.shares();
        if docs < DOCS_EACH {
            errors.push(format!(
                "crates/{name}: {docs:.1} % of lines are documentation, at least {DOCS_EACH} %"
            ));
        }
    }
    let (docs, comments) = crates.values().copied().fold(Lines::default(), Lines::and).shares();
    println!("tidy: of the libraries' lines {docs:.1} % are documentation, {comments:.1} % comments");
    if docs < DOCS {
        errors.push(format!("{docs:.1} % of the libraries' lines are documentation, at least {DOCS} %"));
    }
    if comments < COMMENTS {
        errors.push(format!("{comments:.1} % of the libraries' lines are comments, at least {COMMENTS} %"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn lines_are_counted_up_to_the_tests() {
        let text =
            "//! Head.\n\n/// Doc.\nfn f() {\n    // Why.\n    g()\n}\n#[cfg(test)]\nmod tests {\n// x\n}\n";
        let lines = Lines::count(text);
        assert_eq!((lines.all, lines.docs, lines.comments), (6, 2, 1));
    }

    #[test]
    fn a_library_without_documentation_is_told() {
        let mut errors = Vec::new();
        check(&[file("crates/graph/src/lib.rs", "fn f() {}\n")], &mut errors);
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[0].starts_with("crates/graph: 0.0 %"));
        let mut none = Vec::new();
        check(&[file("crates/graph/src/a.rs", "/// A.\n// Why.\nfn f() {}\n")], &mut none);
        check(
            &[file("crates/cli/src/a.rs", "fn f() {}\n"), file("crates/graph/src/a.rs", "/// A.\n// B.\n")],
            &mut none,
        );
        assert!(none.is_empty(), "{none:?}");
    }
}
