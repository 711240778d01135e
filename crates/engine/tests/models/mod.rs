//! Language models of different graphs, which tests serve.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tapml_exec::Interface;
use tapml_graph::Model;
use tapml_import::{Checkpoint, ImportOptions};

/// Latent attention computes keys of all cached tokens anew in each step, so that it is refused.
pub const REFUSED: [&str; 3] = ["deepseek_v2_tiny", "deepseek_v2_tiny_lite", "deepseek_v3_tiny"];

pub fn load(folder: &Path) -> Model {
    Checkpoint::open_with(folder, &ImportOptions::default()).unwrap().model().clone()
}

pub fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
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
