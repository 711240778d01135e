//! Names of the field: functions are verbs or noun phrases, a type's name is defined in at most two crates, and what
//! has a word of the field bears it.

use super::{File, words};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// Crates that may define a type of the same name.
const ROOMS: usize = 2;

/// The three rules.
const RULES: [&str; 3] = ["functions named by a bare word", "type names in three rooms", "private words"];

/// A name that breaks a rule.
struct Finding {
    place: String,
    advice: String,
}

/// Reports every name that breaks a rule.
pub fn check(files: &[File], errors: &mut Vec<String>) -> Result<()> {
    let mut found: [Vec<Finding>; 3] = Default::default();
    let mut types: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for file in files {
        let path = file.path.display().to_string();
        let syntax = syn::parse_file(&file.text).with_context(|| path.clone())?;
        let mut names =
            Names { path, room: room(file), is_test: file.is_test(), found: &mut found, types: &mut types };
        names.visit_file(&syntax);
    }
    for (name, places) in &types {
        let rooms: BTreeSet<&str> = places.iter().map(|(room, _)| room.as_str()).collect();
        if rooms.len() > ROOMS {
            for (_, place) in places {
                let advice =
                    format!("type `{name}` is defined in {} crates: say which one it is", rooms.len());
                found[1].push(Finding { place: place.clone(), advice });
            }
        }
    }
    for (rule, findings) in RULES.iter().zip(&found) {
        println!("tidy: {} {rule}", findings.len());
        errors.extend(findings.iter().map(|finding| format!("{}: {}", finding.place, finding.advice)));
    }
    Ok(())
}

/// The crate of a file: `crates/NAME/…`, or the first folder.
fn room(file: &File) -> String {
    let mut parts = file.path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let first = parts.next().unwrap_or_default();
    if first == "crates" { parts.next().unwrap_or(first) } else { first }
}

/// Why a function's name is no verb and no noun phrase.
fn advise_function(name: &str) -> Option<String> {
    let listed = words::BARE.iter().find(|(words, _)| words.contains(&name));
    let participle = name.ends_with("ed") && !name.contains('_') && !words::NO_PARTICIPLES.contains(&name);
    let advice = match listed {
        Some((_, advice)) => *advice,
        None if participle => words::PARTICIPLE,
        None => return None,
    };
    Some(format!("function `{name}`: {advice}"))
}

/// The parts of a name: `expert_slots` and `ExpertSlots` are `expert` and `slots`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for character in name.chars() {
        if character == '_' || (character.is_uppercase() && was_small) {
            parts.push(String::new());
        }
        was_small = character.is_lowercase();
        if character != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(character.to_lowercase());
        }
    }
    parts
}

struct Names<'a> {
    path: String,
    room: String,
    is_test: bool,
    found: &'a mut [Vec<Finding>; 3],
    types: &'a mut BTreeMap<String, Vec<(String, String)>>,
}

impl Names<'_> {
    fn place(&self, name: &syn::Ident) -> String {
        format!("{}:{}", self.path, name.span().start().line)
    }

    fn function(&mut self, name: &syn::Ident) {
        if let Some(advice) = advise_function(&name.to_string()) {
            self.found[0].push(Finding { place: self.place(name), advice });
        }
        self.word(name);
    }

    fn type_name(&mut self, name: &syn::Ident) {
        if !self.is_test {
            let place = self.place(name);
            self.types.entry(name.to_string()).or_default().push((self.room.clone(), place));
        }
        self.word(name);
    }

    /// Looks for private words in the name of an item, a field or a variant.
    fn word(&mut self, name: &syn::Ident) {
        let text = name.to_string();
        for part in parts(&text) {
            for entry in
                words::PRIVATE.iter().filter(|entry| entry.word == part && entry.holds_in(&self.room))
            {
                let advice = format!("`{text}`: `{part}` is a private word, the field says {}", entry.field);
                let finding = Finding { place: self.place(name), advice };
                self.found[2].push(finding);
            }
        }
    }
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes
        .iter()
        .any(|a| a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|inner| inner == "test"))
}

impl<'ast> Visit<'ast> for Names<'_> {
    /// A test is named by a sentence.
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !item.attrs.iter().any(|attribute| attribute.path().is_ident("test")) {
            self.function(&item.sig.ident);
        }
        visit::visit_item_fn(self, item);
    }

    /// Methods of a trait are named where the trait is declared.
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none() {
            for inner in &item.items {
                if let syn::ImplItem::Fn(function) = inner {
                    self.function(&function.sig.ident);
                }
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig.ident);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let was_test = self.is_test;
        self.is_test |= is_test_only(&item.attrs);
        self.word(&item.ident);
        visit::visit_item_mod(self, item);
        self.is_test = was_test;
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.type_name(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.type_name(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.type_name(&item.ident);
        visit::visit_item_union(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.type_name(&item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.type_name(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.word(&item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.word(&item.ident);
        visit::visit_item_static(self, item);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.word(&variant.ident);
        visit::visit_variant(self, variant);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.word(name);
        }
        visit::visit_field(self, field);
    }
}

#[cfg(test)]
mod tests {
    use super::{advise_function, parts};

    #[test]
    fn bare_words_are_found_and_verbs_are_not() {
        for name in ["of", "beside", "told", "taken", "rounded", "alone", "carving"] {
            assert!(advise_function(name).is_some(), "{name}");
        }
        for name in ["from", "new", "seed", "embed", "round", "for_weight", "is_rounded", "rounded_to_even"] {
            assert!(advise_function(name).is_none(), "{name}");
        }
    }

    #[test]
    fn names_have_parts() {
        assert_eq!(parts("expert_slots"), ["expert", "slots"]);
        assert_eq!(parts("ExpertSlots"), ["expert", "slots"]);
        assert_eq!(parts("IDLE_TIMEOUT"), ["idle", "timeout"]);
    }
}
