//! Language models of different graphs, which tests serve.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tapml_exec::Interface;
use tapml_graph::Model;
use tapml_import::{Checkpoint, ImportOptions};

pub fn load(folder: &Path) -> Model {
    Checkpoint::open_with(folder, &ImportOptions::default()).unwrap().model().clone()
}

/// The checkpoints with logits of these folders. Those that differ in how their weights are stored alone give one graph, of which
/// the first is taken.
pub fn load_distinct(folders: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, Model)> {
    let mut kinds = HashSet::new();
    let folders = folders.into_iter().filter(|folder| folder.join("config.json").exists());
    let all = folders.map(|folder| (folder.clone(), load(&folder)));
    let has_logits = |model: &Model| Interface::from_graph(model.graph()).unwrap().has_logits();
    all.filter(|(_, model)| has_logits(model) && kinds.insert(model.graph().to_text())).collect()
}
