//! `config.json` from a GGUF file's metadata.

use super::arch::Architecture;
use super::facts::{COMMON, Facts, Key};
use super::shards::Model;
use serde_json::{Map, Value as Json, json};
use tapml_graph::Result;

/// `config.json` of the file's model.
///
/// # Errors
/// If a required key is missing or of another type, or the model is one that is not served in GGUF files.
pub fn config(model: &Model, architecture: &'static Architecture) -> Result<Map<String, Json>> {
    let facts = Facts { model, architecture: architecture.name, keys: architecture.keys };
    // Refused before anything is made: their tensors have no rows in the tables of names.
    facts.refuse_experts()?;
    facts.check_heads()?;
    let mut config = Map::new();
    config.insert("model_type".into(), json!(architecture.model_type));
    for Key(key, from) in COMMON.iter().chain(architecture.keys) {
        match facts.value(from)? {
            Json::Null => {}
            value => {
                config.insert((*key).into(), value);
            }
        }
    }
    Ok(config)
}
