//! The modules of the crates, and the declaration behind a path: through modules and what they give on.

use super::File;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use syn::{ImplItem, Item, Type, UseTree, Visibility};

/// A path of more steps than this leads in a circle.
const STEPS: usize = 32;

/// The modules of all crates, by crate and path.
pub struct Crates {
    pub modules: HashMap<Vec<String>, SourceModule>,
}

/// A module: a file, or a part of one.
pub struct SourceModule {
    pub file: PathBuf,
    pub items: Vec<Item>,
}

/// A declaration, and the public members of its type's own `impl`s.
pub struct Found<'a> {
    pub item: &'a Item,
    pub members: Vec<&'a ImplItem>,
}

impl Crates {
    /// The modules of the sources below `crates/*/src`.
    pub fn parse(files: &[File]) -> Result<Crates> {
        let mut modules = HashMap::new();
        for file in files.iter().filter(|file| !file.is_test()) {
            let Some(path) = module_path(&file.path) else { continue };
            let parsed = syn::parse_file(&file.text).with_context(|| file.path.display().to_string())?;
            add(path, &file.path, parsed.items, &mut modules);
        }
        Ok(Crates { modules })
    }

    /// The declaration that a path of crate, modules and name leads to.
    pub fn resolve(&self, path: &[String]) -> Option<Found<'_>> {
        let (place, item) = self.find(path, STEPS)?;
        let (name, module) = place.split_last()?;
        let of_crate = self.modules.iter().filter(|(other, _)| other.first() == module.first());
        let mut of_crate: Vec<_> = of_crate.collect();
        of_crate.sort_by_key(|(module, _)| *module);
        let members = of_crate
            .iter()
            .flat_map(|(_, module)| module.items.iter())
            .flat_map(|item| inherent(item, name))
            .collect();
        Some(Found { item, members })
    }

    /// The file that declares what a path leads to; of a module, its own.
    pub fn declaring_file(&self, path: &[String]) -> Option<&Path> {
        let module = self.modules.get(path).map(|module| module.file.as_path());
        module.or_else(|| {
            let (place, _) = self.find(path, STEPS)?;
            let (_, module) = place.split_last()?;
            Some(self.modules.get(module)?.file.as_path())
        })
    }

    fn find(&self, path: &[String], steps: usize) -> Option<(Vec<String>, &Item)> {
        let steps = steps.checked_sub(1)?;
        let (name, module) = path.split_last()?;
        let Some(SourceModule { items, .. }) = self.modules.get(module) else {
            // The module itself is given on from elsewhere.
            return self.targets(module).into_iter().find_map(|mut target| {
                target.push(name.clone());
                self.find(&target, steps)
            });
        };
        let own = items.iter().find(|item| path_name(item).as_ref() == Some(name));
        if let Some(item) = own {
            return Some((path.to_vec(), item));
        }
        let targets = self.targets(path).into_iter().filter(|target| target != path);
        let given_on = targets.into_iter().find_map(|target| self.find(&target, steps));
        given_on.or_else(|| Some((path.to_vec(), items.iter().find(|item| is_made(item, name))?)))
    }

    /// What the `use`s of the module of a path may mean by its name.
    fn targets(&self, path: &[String]) -> Vec<Vec<String>> {
        let Some((name, module)) = path.split_last() else { return Vec::new() };
        let Some(SourceModule { items, .. }) = self.modules.get(module) else { return Vec::new() };
        let mut targets = Vec::new();
        for item in items {
            let Item::Use(used) = item else { continue };
            for (mut source, given) in leaves(&used.tree) {
                if given == "*" {
                    source.push(name.clone());
                } else if given != *name {
                    continue;
                }
                targets.extend(absolute(module, &source));
            }
        }
        targets
    }
}

/// A path as it stands in a module, from its crate on.
pub fn absolute(module: &[String], source: &[String]) -> Option<Vec<String>> {
    let (mut base, mut rest) = (module, source);
    match source.first()?.as_str() {
        "crate" => (base, rest) = (module.get(..1)?, &source[1..]),
        "self" => rest = &source[1..],
        name if name.starts_with("tapml_") => base = &[],
        _ => {}
    }
    while rest.first().is_some_and(|first| first == "super") {
        (base, rest) = (base.get(..base.len().checked_sub(1)?)?, &rest[1..]);
    }
    Some(base.iter().chain(rest).cloned().collect())
}

/// `crates/x/src/a/b.rs` is `tapml_x`, `a`, `b`.
fn module_path(path: &Path) -> Option<Vec<String>> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let ["crates", name, "src", inner @ ..] = &parts[..] else { return None };
    let mut module = vec![format!("tapml_{}", name.replace('-', "_"))];
    module.extend(inner.iter().map(|part| part.trim_end_matches(".rs").to_string()));
    if module.len() == 2 && ["lib", "main"].contains(&module[1].as_str())
        || module.last().is_some_and(|last| last == "mod")
    {
        module.pop();
    }
    Some(module)
}

/// Adds a module and those inside it, without tests.
fn add(path: Vec<String>, file: &Path, items: Vec<Item>, modules: &mut HashMap<Vec<String>, SourceModule>) {
    let mut own = Vec::new();
    for item in items {
        match item {
            Item::Mod(module) if is_test(&module.attrs) => {}
            Item::Mod(module) if module.content.is_some() => {
                let inner = path.iter().cloned().chain([module.ident.to_string()]).collect();
                add(inner, file, module.content.map(|(_, items)| items).unwrap_or_default(), modules);
            }
            item => own.push(item),
        }
    }
    let module =
        modules.entry(path).or_insert_with(|| SourceModule { file: file.to_path_buf(), items: Vec::new() });
    module.items.extend(own);
}

/// Whether it is compiled for tests only.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

/// The name of a declaration.
fn path_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether a macro has a type or constant of this name among its tokens, or includes a file that is generated and not read here.
fn is_made(item: &Item, name: &str) -> bool {
    let Item::Macro(item) = item else { return false };
    if item.mac.path.is_ident("include") {
        return true;
    }
    let words: Vec<String> = item.mac.tokens.to_string().split_whitespace().map(str::to_string).collect();
    words.windows(3).any(|w| {
        w[0] == "pub"
            && ["const", "enum", "struct"].contains(&w[1].as_str())
            && w[2].trim_end_matches(':') == name
    })
}

/// The public members of an `impl` of a type of this name.
fn inherent<'a>(item: &'a Item, name: &str) -> Vec<&'a ImplItem> {
    let Item::Impl(block) = item else { return Vec::new() };
    let Type::Path(of) = &*block.self_ty else { return Vec::new() };
    if block.trait_.is_some() || of.path.segments.last().is_none_or(|last| last.ident != name) {
        return Vec::new();
    }
    let is_public = |item: &&ImplItem| match item {
        ImplItem::Fn(function) => matches!(function.vis, Visibility::Public(_)),
        ImplItem::Const(constant) => matches!(constant.vis, Visibility::Public(_)),
        _ => false,
    };
    block.items.iter().filter(is_public).collect()
}

/// The paths that a `use` names, each with the name it gets here; `*` for all of a module.
pub fn leaves(tree: &UseTree) -> Vec<(Vec<String>, String)> {
    match tree {
        UseTree::Path(path) => {
            let mut inner = leaves(&path.tree);
            for (source, name) in &mut inner {
                if *name == "self" {
                    *name = path.ident.to_string();
                    source.clear();
                }
                source.insert(0, path.ident.to_string());
            }
            inner
        }
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(rename) => vec![(vec![rename.ident.to_string()], rename.rename.to_string())],
        UseTree::Glob(_) => vec![(Vec::new(), "*".into())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}
