//! Budgets: lines of a file, lines of a function, `unwrap` and `expect` outside tests, glob imports, bytes of the tracked tree.

use super::{File, functions, tracked_files};
use anyhow::{Context, Result};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FILE_LINES: usize = 500;
/// Lines of a function, in every language.
pub const FUNCTION_LINES: usize = 80;
/// `unwrap` and `expect` calls outside tests, per thousand lines, over the whole workspace.
const UNWRAPS_PER_KLOC: f64 = 2.0;

/// Bytes of all tracked files: 40 MiB.
const TREE_BYTES: u64 = 40 << 20;
/// Endings of source files beside Rust's.
const OTHER_SOURCES: &[&str] = &["cu", "cuh", "py", "ts", "wgsl"];

pub fn check(files: &[File], errors: &mut Vec<String>) -> Result<()> {
    let (mut unwraps, mut lines) = (0, 0);
    for file in files {
        let path = file.path.display().to_string();
        let count = file.text.lines().count();
        check_lines(&path, count, errors);
        let syntax = syn::parse_file(&file.text).with_context(|| path.clone())?;
        let mut visitor = Visitor { path: &path, errors, test: file.is_test(), unwraps: 0, test_lines: 0 };
        visitor.visit_file(&syntax);
        if !file.is_test() {
            unwraps += visitor.unwraps;
            lines += count - visitor.test_lines.min(count);
        }
    }
    let rate = 1000.0 * unwraps as f64 / lines.max(1) as f64;
    println!(
        "tidy: {lines} lines of source outside tests, {unwraps} unwrap or expect ({rate:.2} per thousand)"
    );
    if rate > UNWRAPS_PER_KLOC {
        errors.push(format!(
            "{rate:.2} unwrap or expect per thousand lines outside tests, at most {UNWRAPS_PER_KLOC}"
        ));
    }
    Ok(())
}

fn check_lines(path: &str, count: usize, errors: &mut Vec<String>) {
    if count > FILE_LINES {
        errors.push(format!("{path}: {count} lines, at most {FILE_LINES}"));
    }
}

/// The tracked files: their bytes together, and the lines of sources beside Rust's that are not generated.
pub fn check_tracked(root: &Path, errors: &mut Vec<String>) -> Result<()> {
    let mut bytes = 0;
    for name in &tracked_files(root)? {
        let path = root.join(name);
        // A file that is deleted and not committed yet is tracked too.
        let Ok(metadata) = path.symlink_metadata() else { continue };
        bytes += metadata.len();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let generated = name.split('/').any(|part| part == "gen");
        if let Some(ending) = ending.filter(|ending| OTHER_SOURCES.contains(ending) && !generated) {
            let text = std::fs::read_to_string(&path).with_context(|| name.to_string())?;
            check_lines(name, text.lines().count(), errors);
            functions::check(name, ending, &text, errors);
        }
    }
    println!("tidy: the tracked files have {bytes} bytes");
    if bytes > TREE_BYTES {
        errors.push(format!(
            "the tracked files have {bytes} bytes, at most {TREE_BYTES}: `git ls-files -z | xargs -0 du -b | sort -n` lists them by size"
        ));
    }
    Ok(())
}

struct Visitor<'a> {
    path: &'a str,
    errors: &'a mut Vec<String>,
    test: bool,
    unwraps: usize,
    test_lines: usize,
}

impl Visitor<'_> {
    fn function(&mut self, name: &syn::Ident, span: proc_macro2::Span) {
        let lines = span.end().line + 1 - span.start().line;
        if lines > FUNCTION_LINES && !self.test {
            let line = span.start().line;
            self.errors
                .push(format!("{}:{line}: `{name}` has {lines} lines, at most {FUNCTION_LINES}", self.path));
        }
    }
}

/// Whether an item is for tests alone.
pub fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || (a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|i| i == "test"))
    })
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test_only(&item.attrs) {
            let span = item.span();
            self.test_lines += span.end().line + 1 - span.start().line;
            return;
        }
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            self.function(&item.sig.ident, item.block.span());
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "unwrap" || call.method == "expect" {
            self.unwraps += 1;
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !self.test && globs(&item.tree, false) {
            let line = item.span().start().line;
            self.errors.push(format!("{}:{line}: glob import (only preludes may be imported so)", self.path));
        }
    }
}

/// Whether a use tree imports everything of a module that is no prelude.
fn globs(tree: &syn::UseTree, prelude: bool) -> bool {
    match tree {
        syn::UseTree::Glob(_) => !prelude,
        syn::UseTree::Path(p) => globs(&p.tree, p.ident == "prelude"),
        syn::UseTree::Group(g) => g.items.iter().any(|t| globs(t, prelude)),
        _ => false,
    }
}
