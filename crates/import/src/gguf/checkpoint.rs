//! A GGUF file opened as a checkpoint.
//!
//! From here on nothing knows of GGUF: architectures read the same keys and names as for a folder.

use super::arch::Architecture;
use super::config::config;
use super::shards::Model;
use super::tensors::Tensors;
use crate::config::Config;
use crate::weights::Weights;
use std::path::Path;
use tapml_graph::{Context, Error, Result};

/// The file's configuration and weights, as a folder in Hugging Face layout would hold them.
///
/// # Errors
/// If the file is damaged, a part of it is missing, or its architecture is not served.
pub fn open(path: &Path) -> Result<(Config, Weights)> {
    let model = Model::open(path)?;
    let (architecture, json) = describe(&model).context(|| path.display().to_string())?;
    let config = Config::new(path, json);
    let tensors = Tensors::new(model, architecture)?;
    Ok((config, Weights::from_file(tensors)))
}

/// The architecture and `config.json`.
fn describe(model: &Model) -> Result<(&'static Architecture, serde_json::Map<String, serde_json::Value>)> {
    const KEY: &str = "general.architecture";
    let metadata = model.metadata();
    let name =
        metadata.text(KEY)?.ok_or_else(|| metadata.expected_error(KEY, "the name of an architecture"))?;
    let architecture = Architecture::find(name).ok_or_else(|| {
        let text = format!("architecture `{name}` is not supported in GGUF files");
        Error::unsupported(text).with_hint(format!("supported: {}", Architecture::names()))
    })?;
    Ok((architecture, config(model, architecture)?))
}
