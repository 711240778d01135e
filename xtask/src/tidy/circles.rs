//! Circles of files in a crate: files that use one another, over some way, so that none can be understood before the others.

use super::modules::{Crates, absolute, is_test, leaves};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Item, Visibility};

/// The names that a file uses of each other file of its crate.
type Uses<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<String>>>;

/// Each circle is an error.
pub fn check(crates: &Crates, errors: &mut Vec<String>) {
    errors.extend(describe(crates));
}

/// The circles, each with what its files use of one another.
fn describe(crates: &Crates) -> Vec<String> {
    let uses = find_uses(crates);
    let describe = |circle: Vec<&Path>| {
        let members: BTreeSet<&Path> = circle.iter().copied().collect();
        let arrows = circle.iter().flat_map(|file| {
            let inside = uses.get(file).into_iter().flatten().filter(|(to, _)| members.contains(*to));
            inside.map(|(to, names)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                format!("{} uses `{}` of {}", short(file), names.join("`, `"), short(to))
            })
        });
        let arrows: Vec<String> = arrows.collect();
        format!("{}: a circle of {} files: {}", circle[0].display(), circle.len(), arrows.join("; "))
    };
    find_circles(&uses).into_iter().map(describe).collect()
}

/// A path without its crate's folder.
fn short(path: &Path) -> String {
    path.iter().skip(3).collect::<PathBuf>().display().to_string()
}

fn find_uses(crates: &Crates) -> Uses<'_> {
    let mut uses = Uses::new();
    for (path, module) in &crates.modules {
        let mut names = Names::default();
        for item in &module.items {
            match item {
                // What is given on is used by others.
                Item::Use(used) if !matches!(used.vis, Visibility::Inherited) => {}
                item => names.visit_item(item),
            }
        }
        let from = uses.entry(module.file.as_path()).or_default();
        for name in names.paths {
            let Some(name) = absolute(path, &name) else { continue };
            // Behind a type come its functions and variants.
            let mut starts = (2..=name.len()).rev().map(|end| &name[..end]).filter(|_| name[0] == path[0]);
            let found = starts.find_map(|start| Some((crates.declaring_file(start)?, start.last()?.clone())));
            if let Some((file, name)) = found.filter(|(file, _)| *file != module.file) {
                from.entry(file).or_default().insert(name);
            }
        }
    }
    uses
}

/// The paths that code names.
#[derive(Default)]
struct Names {
    paths: BTreeSet<Vec<String>>,
}

impl<'a> Visit<'a> for Names {
    fn visit_item_use(&mut self, used: &'a syn::ItemUse) {
        let given = leaves(&used.tree).into_iter();
        self.paths.extend(given.filter(|(_, name)| name != "*").map(|(source, _)| source));
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    /// Who may see a name is no use of it: `pub(in crate::a)`.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }
}

/// Groups of files that reach one another.
fn find_circles<'a>(uses: &Uses<'a>) -> Vec<Vec<&'a Path>> {
    let reached: BTreeMap<&Path, BTreeSet<&'a Path>> =
        uses.keys().map(|file| (*file, reach(file, uses))).collect();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, others) in &reached {
        if !others.contains(file) || seen.contains(file) {
            continue;
        }
        let back = |other: &&'a Path| reached.get(*other).is_some_and(|back| back.contains(file));
        let circle: Vec<&'a Path> = others.iter().copied().filter(back).collect();
        seen.extend(circle.iter().copied());
        circles.push(circle);
    }
    circles
}

/// All files that a file uses, over others too.
fn reach<'a>(from: &Path, uses: &Uses<'a>) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(file) = left.pop() {
        for to in uses.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*to) {
                left.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File { path: PathBuf::from(path), text: (*text).into() };
        let files: Vec<File> = files.iter().map(file).collect();
        describe(&Crates::parse(&files).unwrap())
    }

    #[test]
    fn files_that_use_one_another_are_a_circle() {
        let found = circles(&[
            ("crates/a/src/lib.rs", "mod b; mod c; pub use b::B; pub use c::C;"),
            ("crates/a/src/b.rs", "use crate::C; pub struct B(C);"),
            ("crates/a/src/c.rs", "pub struct C; impl C { fn b() { let _ = super::b::B::new(); } }"),
        ]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("a circle of 2 files: b.rs uses `C` of c.rs; c.rs uses `B` of b.rs"),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_given_on_and_what_tests_use_is_no_circle() {
        let found = circles(&[
            ("crates/a/src/lib.rs", "mod b; pub use b::B; pub const N: u32 = 1;"),
            (
                "crates/a/src/b.rs",
                "use crate::N; pub struct B([u8; N]); #[cfg(test)] mod tests { use crate::c::C; }",
            ),
            ("crates/a/src/c.rs", "use crate::B; pub struct C(B);"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn who_may_see_a_name_is_no_use() {
        let found = circles(&[
            ("crates/a/src/b/mod.rs", "mod c; pub fn test() { c::c(); }"),
            ("crates/a/src/b/c.rs", "pub(in crate::b) fn c() {}"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
