//! Types that are tuples of three and more, in signatures, fields and aliases: a struct says what each part is. Within a function
//! parts stand beside their use, and rows of a table of constants under one line that says what they are.

use super::File;
use super::sizes::is_test_only;
use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Most parts of a tuple.
const PARTS: usize = 2;

/// Files that may have some: Python takes tuples apart by place, `Platform::prepare` is part of the stable API, and the last three name
/// the rows of their tables of constants.
const EXEMPT: &[&str] = &[
    "bindings/python/src/function.rs",
    "crates/exec/src/platform.rs",
    "crates/exec/src/device/mod.rs",
    "crates/exec/src/ranks/mod.rs",
    "crates/cause/src/hypothesis/lanes.rs",
    "crates/kernels/src/kernel/onnx/map.rs",
    "crates/rpc/src/hub/pages.rs",
];

/// Reports every such type outside tests.
pub fn check(files: &[File], errors: &mut Vec<String>) -> Result<()> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.is_test()) {
        let path = file.path.display().to_string();
        if EXEMPT.contains(&path.as_str()) || path.ends_with("_tests.rs") {
            continue;
        }
        let syntax = syn::parse_file(&file.text).with_context(|| path.clone())?;
        found.extend(long_tuples(&syntax).into_iter().map(|line| format!("{path}:{line}")));
    }
    println!("tidy: {} types of tuples of three and more", found.len());
    errors.extend(found.into_iter().map(|place| {
        format!("{place}: a type is a tuple of more than {PARTS}: a struct says what each part is")
    }));
    Ok(())
}

/// The lines of a file at which such a type begins.
fn long_tuples(file: &syn::File) -> Vec<usize> {
    let mut tuples = Tuples(Vec::new());
    tuples.visit_file(file);
    tuples.0
}

struct Tuples(Vec<usize>);

impl<'ast> Visit<'ast> for Tuples {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_block(&mut self, _: &'ast syn::Block) {}

    fn visit_type_tuple(&mut self, tuple: &'ast syn::TypeTuple) {
        if tuple.elems.len() > PARTS {
            self.0.push(tuple.span().start().line);
        }
        visit::visit_type_tuple(self, tuple);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_in_signatures_fields_and_aliases() {
        let text = "type A = (u8, u8, u8);\nfn f(a: &[(u8, (u8, u8, u8, u8))]) -> (u8, u8) {\n    let x: Vec<(u8, u8, u8)> = g(1, 2, 3);\n}\n\
                    struct S {\n    x: (u8, u8, u8),\n}\nconst T: &[(u8, u8, u8)] = &[];\n#[cfg(test)]\nmod tests {\n    type B = (u8, u8, u8);\n}\n";
        assert_eq!(long_tuples(&syn::parse_file(text).expect("Rust")), [1, 2, 6]);
    }
}
