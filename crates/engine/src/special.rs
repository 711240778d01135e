//! The special tokens and flags of `tokenizer_config.json` and `special_tokens_map.json`.

use serde_json::Value;
use std::path::Path;
use tapml_graph::Result;
use tapml_import::{Config, Section};

/// Texts of a tokenizer's special tokens, as chat templates use them, and whether they are put around a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a text.
    pub bos: Option<String>,
    /// Ends a text.
    pub eos: Option<String>,
    /// Fills batches up.
    pub pad: Option<String>,
    /// Stands for what the vocabulary lacks.
    pub unk: Option<String>,
    /// Whether every text gets `bos` in front.
    pub add_bos: bool,
    /// Whether every text gets `eos` behind.
    pub add_eos: bool,
}

impl SpecialTokens {
    /// Reads both files of a model folder where they exist; the first has precedence.
    pub fn read(dir: &Path) -> Result<SpecialTokens> {
        SpecialTokens::read_or(dir, &SpecialTokens::default())
    }

    /// As [`SpecialTokens::read`]; `default` where neither file says something.
    pub fn read_or(dir: &Path, default: &SpecialTokens) -> Result<SpecialTokens> {
        let config = Config::read_if_present(&dir.join("tokenizer_config.json"))?;
        let map = Config::read_if_present(&dir.join("special_tokens_map.json"))?;
        let sections: Vec<Section> = [&config, &map].into_iter().flatten().map(Config::root).collect();
        // Only `tokenizer_config.json` has these flags.
        let flag = |key: &str, default| match &config {
            Some(config) => config.root().flag_or(key, default),
            None => Ok(default),
        };
        let token = |key: &str, default: &Option<String>| -> Result<Option<String>> {
            let found: Result<Vec<Option<String>>> = sections.iter().map(|s| text(s, key)).collect();
            Ok(found?.into_iter().flatten().next().or_else(|| default.clone()))
        };
        Ok(SpecialTokens {
            bos: token("bos_token", &default.bos)?,
            eos: token("eos_token", &default.eos)?,
            pad: token("pad_token", &default.pad)?,
            unk: token("unk_token", &default.unk)?,
            add_bos: flag("add_bos_token", default.add_bos)?,
            add_eos: flag("add_eos_token", default.add_eos)?,
        })
    }
}

/// A token that is written as a text or as an object with `content`.
fn text(section: &Section, key: &str) -> Result<Option<String>> {
    match section.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Object(object)) => match object.get("content") {
            Some(Value::String(text)) => Ok(Some(text.clone())),
            _ => Err(section.expected_error(key, "a text, or an object with the text `content`")),
        },
        Some(_) => Err(section.expected_error(key, "a text, or an object with the text `content`")),
    }
}
