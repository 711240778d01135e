//! How a site makes token ids of messages, and how it chooses tokens unless a request says otherwise.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use tapml_engine::Tokenizer;
use tapml_graph::Result;
use tapml_import::{Checkpoint, Config};

/// What beside `tokenizer.json` decides on ids.
#[derive(Serialize)]
pub(super) struct TextSettings {
    /// The chat template, if there is one.
    template: Option<String>,
    /// Texts of the special tokens under the names that templates have for them.
    special: BTreeMap<&'static str, String>,
    /// The token that every text gets in front, if it does.
    add_bos: Option<u32>,
    /// The token that every text gets behind, if it does.
    add_eos: Option<u32>,
    /// A text ends with any of these.
    stop: Vec<u32>,
}

impl TextSettings {
    pub(super) fn from_tokenizer(tokenizer: &Tokenizer, checkpoint: &Checkpoint) -> TextSettings {
        let special = tokenizer.special();
        let named = [
            ("bos_token", &special.bos),
            ("eos_token", &special.eos),
            ("pad_token", &special.pad),
            ("unk_token", &special.unk),
        ];
        TextSettings {
            template: tokenizer.chat_template().map(|template| template.source().to_string()),
            special: named.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect(),
            add_bos: tokenizer.bos().filter(|_| special.add_bos),
            add_eos: tokenizer.eos().filter(|_| special.add_eos),
            stop: checkpoint.eos().to_vec(),
        }
    }
}

/// `generation_config.json`, as far as a site samples. Without `do_sample` the most likely token is taken.
#[derive(Default, Serialize)]
pub(super) struct Generation {
    temperature: Option<f64>,
    top_k: Option<u32>,
    top_p: Option<f64>,
}

impl Generation {
    pub(super) fn read(dir: &Path) -> Result<Generation> {
        // A GGUF file has none.
        let file = dir.is_dir().then(|| dir.join("generation_config.json"));
        let Some(config) = file.map(|file| Config::read_if_present(&file)).transpose()?.flatten() else {
            return Ok(Generation::default());
        };
        let root = config.root();
        if !root.flag_or("do_sample", false)? {
            return Ok(Generation::default());
        }
        let top_p = root.number_or("top_p", 1.0, 0.0..=1.0)?;
        Ok(Generation {
            temperature: Some(root.number_or("temperature", 1.0, 0.0..=1e4)?),
            // 0 is Transformers' word for all.
            top_k: root.optional_size("top_k", 0..=u32::MAX)?.filter(|&k| k > 0),
            top_p: Some(top_p).filter(|&p| p > 0.0),
        })
    }
}
