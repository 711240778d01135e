//! The registry has every architecture of the sources, from which the page of architectures is made.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use tapml_import::ARCHITECTURES;

/// The texts in quotes of every `model_types: &[…]` in a file or in the files of a folder.
fn model_types(path: &Path) -> Vec<String> {
    if path.is_dir() {
        return std::fs::read_dir(path)
            .unwrap()
            .flat_map(|entry| model_types(&entry.unwrap().path()))
            .collect();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap();
    let lists = text.split("model_types: &[").skip(1).map(|rest| rest.split(']').next().unwrap());
    lists.flat_map(|list| list.split('"').skip(1).step_by(2).map(str::to_string)).collect()
}

#[test]
fn the_registry_has_every_architecture_of_the_sources_once() {
    let found = model_types(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arch"));
    let registered: Vec<&str> = ARCHITECTURES.iter().flat_map(|a| a.model_types).copied().collect();
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<String>>();
    assert_eq!(found.iter().cloned().collect::<BTreeSet<String>>(), set(&registered));
    assert_eq!(found.len(), registered.len(), "{found:?}");
}
