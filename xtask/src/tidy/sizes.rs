//! Budgets: lines of a file, lines of a function, `unwrap` and `expect` outside tests, glob imports.

use super::File;
use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FILE_LINES: usize = 700;
const FUNCTION_LINES: usize = 80;
/// `unwrap` and `expect` calls outside tests, per thousand lines, over the whole workspace.
const UNWRAPS_PER_KLOC: f64 = 2.0;

/// Files that may be longer than the budget, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

pub fn check(files: &[File], errors: &mut Vec<String>) -> Result<()> {
    let (mut unwraps, mut lines) = (0, 0);
    for file in files {
        let path = file.path.display().to_string();
        let count = file.text.lines().count();
        if count > FILE_LINES && !LONG_FILES.iter().any(|(name, _)| *name == path) {
            errors.push(format!("{path}: {count} lines, at most {FILE_LINES}"));
        }
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

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
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
