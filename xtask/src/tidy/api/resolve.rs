//! Finds the declaration behind a path: through the modules of the crates and what they give on.

use super::super::File;
use super::leaves;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::Path;
use syn::{ImplItem, Item, Type, Visibility};

/// A path of more steps than this leads in a circle.
const STEPS: usize = 32;

/// The modules of all crates, by crate and path.
pub struct Crates {
    modules: HashMap<Vec<String>, Vec<Item>>,
}

/// A declaration, and the inherent methods of its type.
pub struct Found<'a> {
    pub item: &'a Item,
    pub methods: Vec<&'a syn::ImplItemFn>,
}

impl Crates {
    /// The modules of the sources below `crates/*/src`.
    pub fn parse(files: &[File]) -> Result<Crates> {
        let mut modules = HashMap::new();
        for file in files.iter().filter(|file| !file.is_test()) {
            let Some(path) = module_path(&file.path) else { continue };
            let parsed = syn::parse_file(&file.text).with_context(|| file.path.display().to_string())?;
            add(path, parsed.items, &mut modules);
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
        let methods = of_crate
            .iter()
            .flat_map(|(_, items)| items.iter())
            .flat_map(|item| inherent(item, name))
            .collect();
        Some(Found { item, methods })
    }

    fn find(&self, path: &[String], steps: usize) -> Option<(Vec<String>, &Item)> {
        let steps = steps.checked_sub(1)?;
        let (name, module) = path.split_last()?;
        let Some(items) = self.modules.get(module) else {
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

    /// What the `pub use`s of the module of a path may mean by its name.
    fn targets(&self, path: &[String]) -> Vec<Vec<String>> {
        let Some((name, module)) = path.split_last() else { return Vec::new() };
        let Some(items) = self.modules.get(module) else { return Vec::new() };
        let mut targets = Vec::new();
        for item in items {
            let Item::Use(used) = item else { continue };
            if !matches!(used.vis, Visibility::Public(_)) {
                continue;
            }
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
fn absolute(module: &[String], source: &[String]) -> Option<Vec<String>> {
    let (first, rest) = source.split_first()?;
    let (base, rest) = match first.as_str() {
        "crate" => (module.get(..1)?, rest),
        "self" => (module, rest),
        "super" => (module.get(..module.len().checked_sub(1)?)?, rest),
        name if name.starts_with("tapml_") => (&[][..], source),
        _ => (module, source),
    };
    Some(base.iter().chain(rest).cloned().collect())
}

/// `crates/x/src/a/b.rs` is `tapml_x`, `a`, `b`.
fn module_path(path: &Path) -> Option<Vec<String>> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let ["crates", name, "src", inner @ ..] = &parts[..] else { return None };
    let mut module = vec![format!("tapml_{}", name.replace('-', "_"))];
    module.extend(inner.iter().map(|part| part.trim_end_matches(".rs").to_string()));
    if module.len() == 2 && module[1] == "lib" || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    Some(module)
}

/// Adds a module and those inside it.
fn add(path: Vec<String>, items: Vec<Item>, modules: &mut HashMap<Vec<String>, Vec<Item>>) {
    let mut own = Vec::new();
    for item in items {
        match item {
            Item::Mod(module) if module.content.is_some() => {
                let inner = path.iter().cloned().chain([module.ident.to_string()]).collect();
                add(inner, module.content.map(|(_, items)| items).unwrap_or_default(), modules);
            }
            item => own.push(item),
        }
    }
    modules.entry(path).or_default().extend(own);
}

/// The name of a declaration that others may use.
fn path_name(item: &Item) -> Option<String> {
    let (name, visibility) = match item {
        Item::Const(i) => (&i.ident, &i.vis),
        Item::Enum(i) => (&i.ident, &i.vis),
        Item::Fn(i) => (&i.sig.ident, &i.vis),
        Item::Static(i) => (&i.ident, &i.vis),
        Item::Struct(i) => (&i.ident, &i.vis),
        Item::Trait(i) => (&i.ident, &i.vis),
        Item::Type(i) => (&i.ident, &i.vis),
        _ => return None,
    };
    matches!(visibility, Visibility::Public(_)).then(|| name.to_string())
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

/// The public functions of an `impl` of a type of this name.
fn inherent<'a>(item: &'a Item, name: &str) -> Vec<&'a syn::ImplItemFn> {
    let Item::Impl(block) = item else { return Vec::new() };
    let Type::Path(of) = &*block.self_ty else { return Vec::new() };
    if block.trait_.is_some() || of.path.segments.last().is_none_or(|last| last.ident != name) {
        return Vec::new();
    }
    let functions = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(function) => Some(function),
        _ => None,
    });
    functions.filter(|function| matches!(function.vis, Visibility::Public(_))).collect()
}
